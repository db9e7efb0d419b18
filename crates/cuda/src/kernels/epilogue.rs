//! What a matrix product does to its result before it is stored, as code and as operands.
//!
//! The code is generated, so that a product has exactly its own stages, with nothing to decide while it runs. It gives the
//! kernels these names: `Epilogue`, the operands; `finish`, which adds the bias and runs the stages over N neighbouring
//! columns of a row; or else `finish_gated`, which does so for values and their gates. Their parts may be called at different
//! times, so that a kernel has many loads on their way at once: `fetch` brings the operands that are read element
//! by element, `Fetched`, as they are stored, and `apply_stages` uses them; `apply_gate` joins values and gates.

use kinora_graph::{
    DType, TensorType,
    op::{Activation, Stage},
};

use super::{
    DevicePointer,
    names::{activation_name, type_name},
};
use crate::launch::{StructValue, limits::long};

/// An epilogue over the result of a product.
#[derive(Clone, Debug)]
pub(crate) struct Epilogue<'a> {
    /// Whether sums are multiplied by a scale first.
    pub scaled: bool,
    /// The type of the bias, if there is one.
    pub bias: Option<DType>,
    /// What the gates go through, if there are any.
    pub gate: Option<Activation>,
    /// The stages.
    pub stages: &'a [Stage],
    /// The types of the stages' operands, in order.
    pub operands: &'a [TensorType],
    /// The type of the result.
    pub result: &'a TensorType,
}

impl Epilogue<'_> {
    /// The code that a kernel includes.
    pub fn code(&self) -> String {
        let count = self.operands.len().max(1);
        let (fields, fetches, stages) = self.parts();
        let mut code = format!(
            "#include \"epilogue.cuh\"\ntypedef EpilogueOperands<{count}> Epilogue;\n\
             constexpr int element_operands = {};\ntemplate <int N>\nstruct Fetched {{\n{fields}}};\n",
            self.elementwise().count()
        );
        code += &function("fetch", "Fetched<N> &f, const Epilogue &e, i64 element", &fetches);
        code += &function(
            "apply_stages",
            "float (&v)[N], const Fetched<N> &f, const Epilogue &e, int row, int column",
            &stages,
        );
        let fetch = "Fetched<N> f;\nfetch(f, e, element);\n";
        let Some(gate) = self.gate else {
            code += &function(
                "finish",
                "float (&v)[N], const Epilogue &e, int row, i64 element, int column",
                &format!("{fetch}apply_stages(v, f, e, row, column);\n"),
            );
            return code;
        };
        let gated = each(&format!("v[i] *= {}(gate[i]);", activation_name(Some(gate))));
        code += &function(
            "apply_gate",
            "float (&v)[N], float (&gate)[N], const Epilogue &e, int column",
            &format!(
                "{}{}{gated}",
                self.scale_and_add_bias("v", "column"),
                self.scale_and_add_bias("gate", "e.columns + column")
            ),
        );
        code += &function(
            "finish_gated",
            "float (&v)[N], float (&gate)[N], const Epilogue &e, int row, i64 element, int column",
            &format!("{fetch}apply_gate(v, gate, e, column);\napply_stages(v, f, e, row, column);\n"),
        );
        code
    }

    /// The same, with `prefetch` as well: it has what `fetch` would bring copied to shared memory by cp.async.
    pub fn code_with_prefetch(&self) -> String {
        let each = |(at, ty): (usize, &TensorType)| {
            let ty = type_name(ty.dtype);
            format!(
                "cp_async_all(to.operand{at}, static_cast<const {ty} *>(e.operand[{at}]) + element, there);\n"
            )
        };
        let copies: String = self.elementwise().map(each).collect();
        let prefetch =
            function("prefetch", "Fetched<N> &to, const Epilogue &e, i64 element, bool there", &copies);
        format!("#include \"matrix.cuh\"\n{}{prefetch}", self.code())
    }

    /// Bytes of what is fetched for so many neighbouring columns.
    pub fn fetched_bytes(&self, columns: usize) -> usize {
        self.elementwise().map(|(_, ty)| columns * ty.dtype.size()).sum()
    }

    /// The operands, as `Epilogue` has them.
    pub fn argument(
        &self,
        [scale, bias]: [Option<DevicePointer>; 2],
        operands: &[DevicePointer],
    ) -> StructValue {
        let images = self.result.shape.first().copied().unwrap_or(1);
        // A result without images has no rows that could ask.
        let rows_per_image = self.result.shape.rows().checked_div(images).unwrap_or(1).max(1);
        let columns = self.result.shape.channels();
        // An array has at least one element.
        let operands = if operands.is_empty() { &[DevicePointer::NULL] } else { operands };
        StructValue::named("Epilogue")
            .with("bias", bias.unwrap_or_default())
            .with("scale", scale.unwrap_or_default())
            .with("columns", long(columns))
            .with("rows_per_image", long(rows_per_image))
            .with_array("operand", operands)
    }

    /// The operands that are read element by element, by their numbers: those whose loads are worth sending early.
    fn elementwise(&self) -> impl Iterator<Item = (usize, &TensorType)> {
        let mut next = 0;
        Stage::split(self.stages, self.operands).filter_map(move |(stage, own)| {
            let at = next;
            next += stage.operands();
            let elementwise = matches!(stage, Stage::Add | Stage::Mul | Stage::Blend { .. });
            own.first().filter(|_| elementwise).map(|ty| (at, ty))
        })
    }

    /// Multiplies as many columns as a function has by the scale, and adds the bias, if there are such.
    fn scale_and_add_bias(&self, to: &str, place: &str) -> String {
        let scale = self.scaled.then(|| with_vector(to, "*=", DType::F32, "e.scale", place));
        let bias = self.bias.map(|dtype| with_vector(to, "+=", dtype, "e.bias", place));
        scale.unwrap_or_default() + &bias.unwrap_or_default()
    }

    /// What is fetched, the code that fetches it, and the code that applies it. Vectors of a channel are not among what is
    /// fetched: many rows share them, so that they are near. Nor is a gate's bias: it comes before the gate.
    fn parts(&self) -> (String, String, String) {
        let (mut fields, mut fetches, mut stages) = (String::new(), String::new(), String::new());
        if self.gate.is_none() {
            stages += &self.scale_and_add_bias("v", "column");
        }
        let mut at = 0;
        for (stage, own) in Stage::split(self.stages, self.operands) {
            let dtype = own.first().map_or(DType::F32, |ty| ty.dtype);
            let mut operand = || {
                let ty = type_name(dtype);
                fields += &format!("Pack<{ty}, N> operand{at};\n");
                fetches += &format!(
                    "f.operand{at} = *reinterpret_cast<const Pack<{ty}, N> *>(static_cast<const {ty} *>\
                     (e.operand[{at}]) + element);\n"
                );
                format!("to_float(f.operand{at}.lane[i])")
            };
            stages += &match stage {
                Stage::Activate(activation) => {
                    each(&format!("v[i] = {}(v[i]);", activation_name(Some(activation))))
                }
                Stage::Scale(factor) => each(&format!("v[i] *= __int_as_float({:#010x});", factor.to_bits())),
                Stage::AddChannels => {
                    let channels = self.result.shape.channels();
                    let shared = own.first().is_none_or(|ty| ty.elements() == channels);
                    let place =
                        if shared { "column" } else { "row / int(e.rows_per_image) * e.columns + column" };
                    with_vector("v", "+=", dtype, &format!("e.operand[{at}]"), place)
                }
                Stage::Add => each(&format!("v[i] += {};", operand())),
                Stage::Mul => each(&format!("v[i] *= {};", operand())),
                Stage::Blend { accumulator_first } => {
                    let other = operand();
                    let name = own.get(1).map_or("f32", |ty| type_name(ty.dtype));
                    let next = at + 1;
                    let alpha =
                        format!("float alpha = to_float(*static_cast<const {name} *>(e.operand[{next}]));\n");
                    let [first, second] = if accumulator_first { ["v[i]", &other] } else { [&other, "v[i]"] };
                    block(&(alpha + &each(&format!("v[i] = alpha * {first} + (1.0f - alpha) * {second};"))))
                }
            };
            at += stage.operands();
        }
        (fields, fetches, stages)
    }
}

/// Adds neighbours of a vector, or multiplies by them.
fn with_vector(to: &str, assign: &str, dtype: DType, from: &str, place: &str) -> String {
    let ty = type_name(dtype);
    block(&format!(
        "float other[N];\nload(other, static_cast<const {ty} *>({from}) + {place});\n{}",
        each(&format!("{to}[i] {assign} other[i];"))
    ))
}

/// A function template over N neighbouring columns.
fn function(name: &str, parameters: &str, body: &str) -> String {
    format!("template <int N>\n__device__ __forceinline__ void {name}({parameters}) {{\n{body}}}\n")
}

/// A statement for each of the columns.
fn each(statement: &str) -> String {
    format!("#pragma unroll\nfor (int i = 0; i < N; i++) {statement}\n")
}

/// A scope of its own.
fn block(body: &str) -> String {
    format!("{{\n{body}}}\n")
}

/// Whether an operand is a tensor that the epilogue reads element by element, by the thread that then writes that element
/// of the result. The epilogue's operands begin at `first`.
pub(crate) fn reads_in_place(stages: &[Stage], first: usize, operand: usize) -> bool {
    let mut at = first;
    for stage in stages {
        if at == operand && stage.operands() > 0 {
            return matches!(stage, Stage::Add | Stage::Mul | Stage::Blend { .. });
        }
        at += stage.operands();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::new(dtype, shape)
    }

    #[test]
    fn stages_take_their_operands_in_order() {
        let result = ty(DType::F16, &[2, 3, 4, 8]);
        let per_image = ty(DType::F32, &[2, 1, 1, 8]);
        let alpha = ty(DType::BF16, &[1]);
        let stages = [
            Stage::AddChannels,
            Stage::Activate(Activation::Silu),
            Stage::Blend { accumulator_first: false },
            Stage::Scale(0.1),
            Stage::Mul,
        ];
        let epilogue = Epilogue {
            scaled: true,
            bias: Some(DType::F16),
            gate: None,
            stages: &stages,
            operands: &[per_image, result.clone(), alpha, result.clone()],
            result: &result,
        };
        let code = epilogue.code();
        for part in [
            "EpilogueOperands<4>",
            "static_cast<const f32 *>(e.scale) + column);\n#pragma unroll\nfor (int i = 0; i < N; i++) v[i] *= other[i];",
            "Pack<f16, N> operand1;",
            "static_cast<const f32 *>(e.operand[0]) + row / int(e.rows_per_image) * e.columns + column",
            "v[i] = silu(v[i]);",
            "static_cast<const f16 *>(e.operand[1]) + element",
            "static_cast<const bf16 *>(e.operand[2])",
            "alpha * to_float(f.operand1.lane[i]) + (1.0f - alpha) * v[i]",
            // 0.1 exactly.
            "__int_as_float(0x3dcccccd)",
            "static_cast<const f16 *>(e.operand[3]) + element",
        ] {
            assert!(code.contains(part), "{part} in\n{code}");
        }
        assert!(!code.contains("finish_gated"));
        let argument = epilogue.argument(
            [2048, 256].map(|at| Some(DevicePointer::new(at))),
            &[512, 768, 1024, 1280].map(DevicePointer::new),
        );
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let words: Vec<u64> = argument.bytes().chunks(8).map(word).collect();
        assert_eq!(words, [256, 2048, 8, 12, 512, 768, 1024, 1280]);
    }

    #[test]
    fn a_vector_for_all_images_needs_no_image() {
        let result = ty(DType::F32, &[4, 8]);
        let shared = ty(DType::F32, &[8]);
        let epilogue = Epilogue {
            scaled: false,
            bias: None,
            gate: Some(Activation::Gelu),
            stages: &[Stage::AddChannels],
            operands: &[shared],
            result: &result,
        };
        let code = epilogue.code();
        assert!(
            code.contains("(e.operand[0]) + column);") && code.contains("v[i] *= gelu(gate[i]);"),
            "{code}"
        );
    }

    #[test]
    fn only_tensors_are_overwritten() {
        let silu = Stage::Activate(Activation::Silu);
        let blend = Stage::Blend { accumulator_first: true };
        let stages = [Stage::AddChannels, silu, Stage::Add, Stage::Scale(2.0), Stage::Mul, blend];
        let overwritten: Vec<usize> = (0..12).filter(|&i| reads_in_place(&stages, 3, i)).collect();
        assert_eq!(overwritten, [4, 5, 6]);
    }
}
