//! Reads of textures, and accesses to surfaces.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    access::{AccessKind, WarpAccess, for_lanes, set_lane},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Boundary, Operand, SurfaceAccess, TextureAxes, TextureFetch, TextureQuery, Type},
    memory::{ArrayKind, ChannelKind, FilterMode, ReadMode, Texels, Texture},
    numeric::{self, Axis, Neighbours},
};

/// The raw texels of all lanes.
type Raw = [u128; 32];

/// The texels that a lane reads: on each axis one or two, in a slice.
#[derive(Clone, Copy)]
struct Footprint {
    axes: [Neighbours; 3],
    slice: u32,
}

const NOWHERE: Neighbours = Neighbours { index: [None; 2], weight: 0.0 };
const START: Neighbours = Neighbours { index: [Some(0); 2], weight: 0.0 };

impl Unit<'_> {
    /// `tex` and `tld4`.
    pub(super) fn fetch_texture(&mut self, warp: &mut Warp, step: Step<'_>, fetch: TextureFetch) {
        let (results, operands) = step.operands.split_at(step.instruction.results as usize);
        let handles = *warp.registers.long(&self.launched.constants, operands[0]);
        let launched = self.launched;
        let mut rest = step.mask;
        let mut out = [[0u32; 32]; 4];
        let mut addresses = Vec::new();
        let mut bytes = 0;
        while rest != 0 {
            let handle = handles[rest.trailing_zeros() as usize];
            let group = lanes_where(rest, |lane| handles[lane] == handle);
            rest &= !group;
            let texture = launched.textures.texture(handle);
            let Some(texture) = texture.filter(|texture| fits(&texture.texels, fetch.axes)) else {
                self.report_handle(warp, step, group, handle, "texture", fetch.axes);
                continue;
            };
            let mut footprints = [Footprint { axes: [START; 3], slice: 0 }; 32];
            for_lanes(group, |lane| {
                let words = operands[1..].iter().map(|&operand| self.lane(warp, operand, lane) as u32);
                footprints[lane] = footprint(texture, fetch, words);
            });
            let filtered = fetch.gather.is_some() || texture.filter == FilterMode::Linear && !fetch.integer;
            let corners = if filtered { 1 << fetch.axes.count() } else { 1 };
            bytes = bytes.max(texture.texels.format.bytes());
            let mut texels = [[None; 8]; 32];
            for corner in 0..corners {
                let (inside, raw) = self.read_corner(
                    warp,
                    step.pc,
                    &texture.texels,
                    &footprints,
                    (group, corner),
                    &mut addresses,
                );
                for_lanes(inside, |lane| texels[lane][corner] = Some(raw[lane]));
            }
            for_lanes(group, |lane| {
                let colour = colour(texture, fetch, &footprints[lane], &texels[lane][..corners], filtered);
                for (out, value) in out.iter_mut().zip(colour) {
                    out[lane] = value;
                }
            });
        }
        if !addresses.is_empty() {
            self.counters.texture_loads.add_fetches(&mut addresses, bytes as u64);
        }
        if fetch.halves {
            let half = |bits: u32| numeric::f16_bits(f32::from_bits(bits));
            for pair in 0..2 {
                out[pair] = std::array::from_fn(|lane| {
                    half(out[2 * pair][lane]) | half(out[2 * pair + 1][lane]) << 16
                });
            }
        }
        for (&result, values) in results.iter().zip(&out).filter(|(result, _)| !result.is_none()) {
            warp.registers.set_word(result, values, step.mask);
        }
    }

    /// Reads one of the texels around each lane's coordinates. Returns the lanes whose texel is not outside.
    fn read_corner(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        texels: &Texels,
        footprints: &[Footprint; 32],
        (group, corner): (u32, usize),
        addresses: &mut Vec<u64>,
    ) -> (u32, Raw) {
        let mut places = [0; 32];
        let inside = lanes_where(group, |lane| {
            let Footprint { axes, slice } = footprints[lane];
            let index: [Option<u32>; 3] = std::array::from_fn(|axis| axes[axis].index[corner >> axis & 1]);
            let [Some(x), Some(y), Some(z)] = index else { return false };
            places[lane] = texels.address([x, y, z], slice);
            true
        });
        for_lanes(inside, |lane| addresses.push(places[lane]));
        (inside, self.read_texels(warp, pc, &places, inside, texels.format.bytes()))
    }

    /// Reads up to 16 bytes for each lane.
    fn read_texels(
        &mut self,
        warp: &mut Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: usize,
    ) -> Raw {
        let mut raw = [0; 32];
        let access = WarpAccess { pc, addresses, mask, bytes, kind: AccessKind::Read };
        self.global_groups(warp, &access, |unit, warp, view, group| {
            let view = &unit.launched.views[view];
            let allocation = view.allocation;
            for_lanes(group, |lane| {
                let offset = (addresses[lane] - allocation.base) as usize;
                // There are records if races are looked for.
                let written = |granule: usize| view.writes.get(granule).is_some_and(|write| write.load(Relaxed) != 0);
                if view.granules(offset, bytes).any(written) {
                    unit.report_access(warp, FindingKind::TextureMisuse, access.lane(lane), || {
                        "reads a texel that was written in the same launch: the texture cache may hold its old value"
                            .to_owned()
                    });
                }
                for piece in (0..bytes).step_by(8) {
                    let value = allocation.load(offset + piece, bytes.min(8));
                    raw[lane] |= u128::from(value) << (8 * piece);
                }
            });
        });
        raw
    }

    /// `txq` and `suq`.
    pub(super) fn query_texture(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        query: TextureQuery,
        surface: bool,
    ) {
        let handles = *warp.registers.long(&self.launched.constants, step.operands[1]);
        let launched = self.launched;
        let mut out = [0; 32];
        let mut bad = 0;
        for_lanes(step.mask, |lane| {
            let handle = handles[lane];
            let texture = launched.textures.texture(handle);
            let texels = if surface {
                launched.textures.surface(handle)
            } else {
                texture.map(|texture| &texture.texels)
            };
            let Some(texels) = texels else {
                bad |= 1 << lane;
                return;
            };
            out[lane] = match query {
                TextureQuery::Width => texels.extents[0],
                TextureQuery::Height => texels.extents[1],
                TextureQuery::Depth => texels.extents[2],
                TextureQuery::ArraySize => texels.layers.unwrap_or(1),
                TextureQuery::Levels | TextureQuery::Samples => 1,
                TextureQuery::Normalised => u32::from(texture.is_some_and(|texture| texture.normalised)),
                TextureQuery::ChannelType => match (texels.format.kind, texels.format.bits) {
                    (ChannelKind::Unsigned, bits) => [0x01, 0x02, 0x03][bits as usize / 16 % 3],
                    (ChannelKind::Signed, bits) => [0x08, 0x09, 0x0a][bits as usize / 16 % 3],
                    (ChannelKind::Float, 16) => 0x10,
                    (ChannelKind::Float, _) => 0x20,
                },
                TextureQuery::ChannelOrder => u32::from(texels.format.channels),
            };
        });
        if bad != 0 {
            let what = if surface { "surface" } else { "texture" };
            self.report_handle(
                warp,
                step,
                bad,
                handles[bad.trailing_zeros() as usize],
                what,
                TextureAxes::One,
            );
        }
        warp.registers.set_word(step.operands[0], &out, step.mask);
    }

    /// The addresses of a surface access, and the lanes that make it.
    fn surface_places(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        access: SurfaceAccess,
        operands: &[Operand],
    ) -> ([u64; 32], u32) {
        let launched = self.launched;
        let handles = *warp.registers.long(&launched.constants, operands[0]);
        let bytes = u32::from(access.bytes) * u32::from(access.lanes);
        let mut places = [0; 32];
        let mut inside = 0;
        for_lanes(step.mask, |lane| {
            let handle = handles[lane];
            let surface = launched.textures.surface(handle).filter(|texels| fits(texels, access.axes));
            let Some(texels) = surface else {
                return self.report_handle(warp, step, 1 << lane, handle, "surface", access.axes);
            };
            let mut at = operands[1..].iter().map(|&operand| self.lane(warp, operand, lane) as u32 as i32);
            let layer = if access.axes.is_layered() { at.next().unwrap_or(0) } else { 0 };
            let mut place = [0i32; 3];
            for (place, at) in place.iter_mut().zip(at.take(access.axes.count())) {
                *place = at;
            }
            let row = u64::from(texels.extents[0]) * texels.format.bytes() as u64;
            let [_, height, depth] = texels.extents;
            let most = [row.saturating_sub(u64::from(bytes)), u64::from(height) - 1, u64::from(depth) - 1];
            let is_within = |at: i32, most: u64| at >= 0 && at as u64 <= most;
            let layers = u64::from(texels.slices) - 1;
            let whole = u64::from(bytes) <= row;
            let within =
                whole && (0..3).all(|axis| is_within(place[axis], most[axis])) && is_within(layer, layers);
            if !within && access.boundary == Boundary::Trap {
                self.report(warp, FindingKind::OutOfBounds, step.pc, lane as u32, None, || {
                    let [x, y, z] = place;
                    let [width, height, depth] = texels.extents;
                    let size = texels.format.bytes();
                    format!(
                        "accesses {bytes} bytes of a surface at byte {x}, row {y}, slice {z}, layer {layer}; it has \
                         {width} texels of {size} bytes in a row, {height} rows, {depth} slices and {} layers",
                        texels.slices
                    )
                });
                return;
            }
            if !whole || !within && access.boundary == Boundary::Zero {
                return;
            }
            let clamped = |at: i32, most: u64| at.max(0).min(most.min(i32::MAX as u64) as i32) as u32;
            // The last place of a row that is aligned.
            let x = clamped(place[0], most[0] / u64::from(bytes) * u64::from(bytes));
            let [y, z] = [clamped(place[1], most[1]), clamped(place[2], most[2])];
            places[lane] = texels.address([0, y, z], clamped(layer, layers)) + u64::from(x);
            inside |= 1 << lane;
        });
        (places, inside)
    }

    /// `suld`.
    pub(super) fn load_surface(&mut self, warp: &mut Warp, step: Step<'_>, access: SurfaceAccess) {
        let (results, operands) = step.operands.split_at(step.instruction.results as usize);
        let (places, inside) = self.surface_places(warp, step, access, operands);
        let bytes = access.bytes as usize;
        let all = bytes * access.lanes as usize;
        let raw = self.read_texels(warp, step.pc, &places, inside, all);
        if inside != 0 {
            self.counters.surface_loads.add_global(&places, inside, all);
        }
        for (i, &result) in results.iter().enumerate().filter(|(_, result)| !result.is_none()) {
            for_lanes(step.mask, |lane| {
                let value = (raw[lane] >> (8 * i * bytes)) as u64 & (u64::MAX >> (64 - 8 * bytes));
                set_lane(warp, result, lane, Type::B64, value);
            });
        }
    }

    /// `sust`.
    pub(super) fn store_surface(&mut self, warp: &mut Warp, step: Step<'_>, access: SurfaceAccess) {
        let (operands, values) = step.operands.split_at(1 + access.axes.coordinates());
        let (places, inside) = self.surface_places(warp, step, access, operands);
        let bytes = access.bytes as usize;
        let all = bytes * access.lanes as usize;
        if inside != 0 {
            self.counters.surface_stores.add_global(&places, inside, all);
        }
        let lanes =
            WarpAccess { pc: step.pc, addresses: &places, mask: inside, bytes: all, kind: AccessKind::Write };
        self.global_groups(warp, &lanes, |unit, warp, view, group| {
            let allocation = unit.launched.views[view].allocation;
            for_lanes(group, |lane| {
                let offset = (places[lane] - allocation.base) as usize;
                for (i, &value) in values.iter().enumerate() {
                    allocation.store(offset + i * bytes, bytes, unit.lane(warp, value, lane));
                }
                allocation.mark_written(offset, all);
            });
        });
    }

    #[inline(never)]
    fn report_handle(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        lanes: u32,
        handle: u64,
        what: &str,
        axes: TextureAxes,
    ) {
        let launched = self.launched;
        self.report(warp, FindingKind::TextureMisuse, step.pc, lanes.trailing_zeros(), None, || {
            let textures = &launched.textures;
            let texels = if what == "texture" {
                textures.texture(handle).map(|texture| &texture.texels)
            } else {
                textures.surface(handle)
            };
            match texels {
                Some(texels) => {
                    let layers = if texels.layers.is_some() { " with layers" } else { "" };
                    format!("accesses {axes:?} with the handle of a {what} of kind {:?}{layers}", texels.kind)
                }
                None => {
                    let found = textures.describe(handle, launched.global.find(handle, 1));
                    format!("takes {handle:#x} as the handle of a {what}, but it is {found}")
                }
            }
        });
    }
}

/// The lanes of a mask for which something holds.
fn lanes_where(mask: u32, mut holds: impl FnMut(usize) -> bool) -> u32 {
    let mut found = 0;
    for_lanes(mask, |lane| found |= u32::from(holds(lane)) << lane);
    found
}

/// Whether an instruction for such axes can access these texels.
fn fits(texels: &Texels, axes: TextureAxes) -> bool {
    let kind = match axes {
        TextureAxes::One | TextureAxes::OneLayered => ArrayKind::One,
        TextureAxes::Two | TextureAxes::TwoLayered => ArrayKind::Two,
        TextureAxes::Three => ArrayKind::Three,
        TextureAxes::Cube | TextureAxes::CubeLayered => ArrayKind::Cube,
    };
    texels.kind == kind && texels.layers.is_some() == axes.is_layered()
}

/// The texels that a lane's coordinates read.
fn footprint(texture: &Texture, fetch: TextureFetch, mut words: impl Iterator<Item = u32>) -> Footprint {
    let texels = &texture.texels;
    let layer = if fetch.axes.is_layered() { words.next().unwrap_or(0) } else { 0 };
    let layer = (layer as i32).max(0).min(texels.layers.unwrap_or(1) as i32 - 1) as u32;
    let mut axes = [START; 3];
    let axis = |axis: usize, normalised: bool| Axis {
        extent: texels.extents[axis],
        mode: texture.address[axis],
        normalised,
    };
    if fetch.integer {
        for (i, word) in words.take(fetch.axes.count()).enumerate() {
            let at = word as i32;
            let inside = at >= 0 && (at as u32) < texels.extents[i];
            let index = match inside {
                true => Some(at as u32),
                // Linear memory reads as zero outside.
                false if texels.linear => None,
                false => axis(i, false).index(at as f32),
            };
            axes[i] = Neighbours { index: [index; 2], weight: 0.0 };
        }
        return Footprint { axes, slice: layer };
    }
    let mut coordinates = [0.0; 3];
    for (coordinate, word) in coordinates.iter_mut().zip(words) {
        *coordinate = f32::from_bits(word);
    }
    let mut slice = layer;
    let mut normalised = texture.normalised;
    if fetch.axes.is_cube() {
        let (face, [s, t]) = numeric::cube_face(coordinates);
        slice = 6 * layer + face;
        coordinates = [s, t, 0.0];
        normalised = true;
    }
    let filtered = fetch.gather.is_some() || texture.filter == FilterMode::Linear;
    for (i, place) in axes.iter_mut().enumerate().take(fetch.axes.count()) {
        let axis = axis(i, normalised);
        *place = if filtered {
            axis.linear(coordinates[i])
        } else {
            Neighbours { index: [axis.point(coordinates[i]); 2], ..NOWHERE }
        };
    }
    Footprint { axes, slice }
}

/// What a lane reads: four channels, from the texels around its coordinates.
fn colour(
    texture: &Texture,
    fetch: TextureFetch,
    footprint: &Footprint,
    texels: &[Option<u128>],
    filtered: bool,
) -> [u32; 4] {
    let format = texture.texels.format;
    let normalised = texture.read == ReadMode::NormalisedFloat;
    let float = normalised || format.kind == ChannelKind::Float;
    let channel = |texel: Option<u128>, channel: usize| match texel {
        Some(texel) => numeric::channel(format, normalised, texel, channel),
        None if texture.texels.linear => 0,
        None if float => texture.border[channel].to_bits(),
        None => texture.border[channel] as i32 as u32,
    };
    if let Some(of) = fetch.gather {
        // Around the coordinates, from below the first column.
        return [2, 3, 1, 0].map(|corner| channel(texels.get(corner).copied().flatten(), of as usize));
    }
    if !filtered {
        return std::array::from_fn(|i| channel(texels.first().copied().flatten(), i));
    }
    std::array::from_fn(|i| {
        let mut sum = 0.0;
        for (corner, &texel) in texels.iter().enumerate() {
            let weight: f32 = (0..3)
                .map(|axis| {
                    let weight = footprint.axes[axis].weight;
                    if corner >> axis & 1 == 1 { weight } else { 1.0 - weight }
                })
                .product();
            if weight != 0.0 {
                sum += f64::from(weight) * f64::from(f32::from_bits(channel(texel, i)));
            }
        }
        (sum as f32).to_bits()
    })
}
