//! A kernel and a matrix on a device: what is prepared once, and what is launched for each product.

use std::{slice, time::Instant};

use super::{
    cpu::Scalars,
    csr::{Csr, Index, Value},
    kernel::{Algorithm, SUM_THREADS, Variant},
    schedule::{Tiles, narrow_columns},
    slices::{Extents, Slices},
};
use crate::{
    compile::Compiled,
    execute::{Address, Device, ExecuteError, Launch, ModuleId},
};

/// Where a matrix and its vectors lie on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The row offsets.
    pub offsets: Address,
    /// The columns.
    pub columns: Address,
    /// The values.
    pub values: Address,
    /// The vector that is multiplied.
    pub x: Address,
    /// The result.
    pub y: Address,
}

impl Placed {
    /// Copies a matrix and `x` to a device. What `y` holds is not known.
    ///
    /// # Errors
    /// If the device does not have the memory.
    pub fn new<V: Value, I: Index>(
        device: &mut dyn Device,
        matrix: &Csr<V, I>,
        x: &[V],
    ) -> Result<Placed, ExecuteError> {
        Ok(Placed {
            offsets: place(device, bytemuck::cast_slice(matrix.offsets()))?,
            columns: place(device, bytemuck::cast_slice(matrix.indices()))?,
            values: place(device, bytemuck::cast_slice(matrix.values()))?,
            x: place(device, bytemuck::cast_slice(x))?,
            y: device.allocate(matrix.rows() * size_of::<V>())?,
        })
    }

    /// Frees it all.
    ///
    /// # Errors
    /// If the device fails.
    pub fn free(self, device: &mut dyn Device) -> Result<(), ExecuteError> {
        let Placed { offsets, columns, values, x, y } = self;
        [offsets, columns, values, x, y].into_iter().try_for_each(|address| device.free(address))
    }
}

fn place(device: &mut dyn Device, bytes: &[u8]) -> Result<Address, ExecuteError> {
    let address = device.allocate(bytes.len())?;
    if !bytes.is_empty() {
        device.write(address, bytes)?;
    }
    Ok(address)
}

/// A kernel that is ready to multiply by a matrix.
#[derive(Clone, Debug)]
pub struct Job {
    /// The kernel.
    pub variant: Variant,
    /// Launches that have to run once for the matrix's structure.
    pub preparation: Vec<Launch>,
    /// The launches of a product.
    pub launches: Vec<Launch>,
    /// For kernels that give a row to one group of threads: a launch of nothing but the block that has the longest row. A product takes no
    /// less time than that block, which a sample of blocks may miss.
    pub straggler: Option<Launch>,
    /// Seconds that the host took to make its tables and to copy them.
    pub host_seconds: f64,
    /// Bytes of tables and scratch memory beside the matrix.
    pub extra_bytes: usize,
    buffers: Vec<Address>,
}

/// Makes launches of one module.
struct Maker {
    module: ModuleId,
    threads: usize,
}

impl Maker {
    fn launch(&self, kernel: &str, blocks: usize, arguments: Vec<Vec<u8>>) -> Result<Launch, ExecuteError> {
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| {
            ExecuteError::Launch(format!(
                "{kernel} would need more blocks than a grid has; the matrix is too large"
            ))
        })?;
        Ok(Launch {
            module: self.module,
            kernel: kernel.to_owned(),
            grid: [blocks, 1, 1],
            block: [self.threads as u32, 1, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            arguments,
            overlaps: false,
        })
    }

    /// A launch of a kernel that waits by itself for the one before.
    fn following(
        &self,
        kernel: &str,
        blocks: usize,
        arguments: Vec<Vec<u8>>,
    ) -> Result<Launch, ExecuteError> {
        Ok(Launch { overlaps: true, ..self.launch(kernel, blocks, arguments)? })
    }
}

fn word(number: u64) -> Vec<u8> {
    number.to_ne_bytes().to_vec()
}

impl Job {
    /// Loads the code, and makes and copies the tables that the kernel needs.
    ///
    /// # Errors
    /// If the device does not take the code or has no memory for the tables.
    pub fn new<V: Value, I: Index>(
        device: &mut dyn Device,
        (variant, code): (Variant, &Compiled),
        matrix: &Csr<V, I>,
        at: &Placed,
        scalars: Scalars,
    ) -> Result<Job, ExecuteError> {
        let make = Maker { module: device.load(code)?, threads: variant.threads };
        let (rows, nonzeros) = (matrix.rows(), matrix.nonzeros());
        let mut job = Job {
            variant,
            preparation: Vec::new(),
            launches: Vec::new(),
            straggler: None,
            host_seconds: 0.0,
            extra_bytes: 0,
            buffers: Vec::new(),
        };
        if rows == 0 {
            return Ok(job);
        }
        let [alpha, beta] =
            [scalars.alpha, scalars.beta].map(|number| bytemuck::bytes_of(&V::from_f64(number)).to_vec());
        let (count, vectors) = (word(rows as u64), [word(at.x), word(at.y)]);
        let arrays = [word(at.offsets), word(at.columns), word(at.values)];
        match variant.algorithm {
            Algorithm::Scalar | Algorithm::Vector { .. } | Algorithm::NarrowVector { .. } => {
                let (kernel, lanes) = match variant.algorithm {
                    Algorithm::Vector { lanes } | Algorithm::NarrowVector { lanes } => ("spmv_vector", lanes),
                    _ => ("spmv_scalar", 1),
                };
                let mut arrays = arrays;
                let mut firsts = None;
                if let Algorithm::NarrowVector { .. } = variant.algorithm {
                    let start = Instant::now();
                    let (table, columns) = narrow_columns(matrix, (0..rows).map(|row| matrix.row(row)));
                    arrays[1] = word(job.table(device, bytemuck::cast_slice(&columns))?);
                    firsts = Some(job.table(device, bytemuck::cast_slice(&table))?);
                    job.host_seconds = start.elapsed().as_secs_f64();
                }
                let factors: Vec<Vec<u8>> = [alpha, beta].into_iter().chain(firsts.map(word)).collect();
                let arguments = [&[count], &arrays[..], &vectors, &factors].concat();
                let block = variant.threads / lanes;
                job.launches.push(make.launch(kernel, rows.div_ceil(block), arguments.clone())?);
                let longest = (0..rows).max_by_key(|&row| matrix.row(row).len()).unwrap_or(0);
                let first = longest / block * block;
                let mut of_block = arguments;
                of_block[0] = word(block.min(rows - first) as u64);
                of_block[1] = word(at.offsets + (first * size_of::<I>()) as u64);
                of_block[5] = word(at.y + (first * size_of::<V>()) as u64);
                if let Some(firsts) = firsts {
                    of_block[8] = word(firsts + (first * size_of::<I>()) as u64);
                }
                job.straggler = Some(make.launch(kernel, 1, of_block)?);
            }
            Algorithm::Merge => {
                let tiles = (rows + nonzeros).div_ceil(variant.tile());
                let firsts = job.room(device, (tiles + 1) * size_of::<I>())?;
                let carries = job.room(device, tiles * size_of::<V>())?;
                let [firsts, carries] = [word(firsts), word(carries)];
                let extents = [count.clone(), word(nonzeros as u64)];
                let tile_count = word(tiles as u64);
                let search =
                    [&extents[..], &[tile_count.clone(), arrays[0].clone(), firsts.clone()]].concat();
                let blocks = (tiles + 1).div_ceil(variant.threads);
                job.preparation.push(make.launch("spmv_merge_search", blocks, search)?);
                let factors = [carries.clone(), alpha.clone(), beta];
                let main = [&extents[..], slice::from_ref(&firsts), &arrays, &vectors, &factors].concat();
                job.launches.push(make.launch("spmv_merge", tiles, main)?);
                if tiles > 1 {
                    let [_, y] = vectors;
                    let finish = vec![count, tile_count, firsts, carries, y, alpha];
                    let blocks = tiles.div_ceil(variant.threads / 32);
                    job.launches.push(make.launch("spmv_merge_finish", blocks, finish)?);
                }
            }
            Algorithm::Adaptive | Algorithm::Narrow => {
                let start = Instant::now();
                let mut arrays = arrays;
                let (tiles, firsts) = match variant.algorithm {
                    Algorithm::Narrow => {
                        let tiles = Tiles::narrow(matrix, variant.tile());
                        let own = tiles.tiles.iter().map(|&[.., begin, end]| begin.at()..end.at());
                        let (firsts, columns) = narrow_columns(matrix, own);
                        arrays[1] = word(job.table(device, bytemuck::cast_slice(&columns))?);
                        let firsts = job.table(device, bytemuck::cast_slice(&firsts))?;
                        (tiles, vec![word(firsts)])
                    }
                    _ => (Tiles::new(matrix, variant.tile()), Vec::new()),
                };
                let Tiles { tiles, long_rows, pieces } = tiles;
                let table = job.table(device, bytemuck::cast_slice(&tiles))?;
                job.host_seconds = start.elapsed().as_secs_f64();
                let partial = word(job.room(device, pieces * size_of::<V>())?);
                let factors = [alpha, beta];
                let partials = slice::from_ref(&partial);
                let main = [&[word(table)], &arrays[..], &vectors, partials, &factors, &firsts].concat();
                job.launches.push(make.launch("spmv_adaptive", tiles.len(), main)?);
                if !long_rows.is_empty() {
                    let table = job.table(device, bytemuck::cast_slice(&long_rows))?;
                    let [_, y] = vectors;
                    let finish = [&[word(table), partial, y], &factors[..]].concat();
                    job.launches.push(make.following("spmv_finish", long_rows.len(), finish)?);
                }
            }
            Algorithm::Sliced { columns, block_bytes } => {
                let start = Instant::now();
                let resident = |threads: usize| device.multiprocessors() * (1024 / threads).max(1);
                let (shares, resident) = (resident(variant.threads), resident(SUM_THREADS));
                let extents = Extents { columns, block_bytes, shares, resident };
                let tables = Slices::new(matrix, &extents).ok_or_else(|| {
                    ExecuteError::Launch(
                        "the sliced kernel counts products in 32 bits, and this matrix has more".to_owned(),
                    )
                })?;
                let mut table = |bytes: &[u8]| job.table(device, bytes).map(word);
                let pieces = table(bytemuck::cast_slice(&tables.pieces))?;
                let firsts = table(bytemuck::cast_slice(&tables.firsts))?;
                let values = table(bytemuck::cast_slice(&tables.values))?;
                let columns = table(bytemuck::cast_slice(&tables.columns))?;
                let places = table(bytemuck::cast_slice(&tables.places))?;
                let blocks = table(bytemuck::cast_slice(&tables.rows.blocks))?;
                let words = table(bytemuck::cast_slice(&tables.rows.words))?;
                let long_rows = table(bytemuck::cast_slice(&tables.long_rows))?;
                job.host_seconds = start.elapsed().as_secs_f64();
                let products = word(job.room(device, tables.products * size_of::<V>())?);
                let partial = word(job.room(device, tables.partials * size_of::<V>())?);
                let [x, y] = vectors;
                let shared = variant.shared_bytes::<V>().map(|bytes| bytes as u32);
                if !tables.pieces.is_empty() {
                    let clear = vec![products.clone(), word(tables.products as u64)];
                    let blocks = tables.products.div_ceil(variant.threads);
                    job.preparation.push(make.launch("spmv_sliced_clear", blocks, clear)?);
                    let arguments = vec![pieces, firsts, values, columns, places, x, products.clone()];
                    let launch = make.launch("spmv_sliced_products", tables.firsts.len() - 1, arguments)?;
                    job.launches.push(Launch { shared_bytes: shared[0], ..launch });
                }
                let arrays = [blocks, words, products, y.clone(), partial.clone()];
                let arguments = [&arrays[..], &[alpha.clone(), beta]].concat();
                let launch = make.following("spmv_sliced_sums", tables.rows.blocks.len(), arguments)?;
                let block = [SUM_THREADS as u32, 1, 1];
                job.launches.push(Launch { shared_bytes: shared[1], block, ..launch });
                if !tables.long_rows.is_empty() {
                    // The launch before has given these rows their share of y.
                    let one = bytemuck::bytes_of(&V::from_f64(1.0)).to_vec();
                    let finish = vec![long_rows, partial, y, alpha, one];
                    job.launches.push(make.following("spmv_finish", tables.long_rows.len(), finish)?);
                }
            }
        }
        Ok(job)
    }

    fn room(&mut self, device: &mut dyn Device, bytes: usize) -> Result<Address, ExecuteError> {
        let address = device.allocate(bytes)?;
        self.buffers.push(address);
        self.extra_bytes += bytes;
        Ok(address)
    }

    fn table(&mut self, device: &mut dyn Device, bytes: &[u8]) -> Result<Address, ExecuteError> {
        let address = self.room(device, bytes.len())?;
        if !bytes.is_empty() {
            device.write(address, bytes)?;
        }
        Ok(address)
    }

    /// Frees its tables.
    ///
    /// # Errors
    /// If the device fails.
    pub fn free(self, device: &mut dyn Device) -> Result<(), ExecuteError> {
        self.buffers.into_iter().try_for_each(|address| device.free(address))
    }
}
