//! Which targets have an instruction. What the assembler would refuse for the module's target is refused here too.

use super::{Context, Decoder};
use crate::error::PtxError;

/// The target that an instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// This target or a later one.
    From(u32),
    /// Exactly this architecture-specific target, with an `a`.
    Only(u32),
    /// An architecture-specific target from this one on.
    LetteredFrom(u32),
}

impl Need {
    fn is_met(self, target: &str) -> bool {
        let number = target.strip_prefix("sm_").unwrap_or(target);
        let plain = number.trim_end_matches(['a', 'f']);
        let Ok(chip) = plain.parse::<u32>() else { return true };
        match self {
            Need::From(first) => chip >= first,
            Need::Only(only) => chip == only && number.ends_with('a'),
            Need::LetteredFrom(first) => chip >= first && number != plain,
        }
    }

    fn text(self) -> String {
        match self {
            Need::From(first) => format!("sm_{first} or later"),
            Need::Only(only) => format!("sm_{only}a"),
            Need::LetteredFrom(first) => format!("sm_{first}a or a later architecture-specific target"),
        }
    }
}

impl Decoder<'_, '_> {
    /// Checks that the module's target has an instruction.
    pub(super) fn check_architecture(&self, context: Context<'_, '_>) -> Result<(), PtxError> {
        let target = self.module.target;
        match need(context.instruction.opcode) {
            Some(need) if !need.is_met(target) => {
                Err(context.wrong(format!("this needs {}, but the module is for {target}", need.text())))
            }
            _ => Ok(()),
        }
    }
}

/// The target that an instruction needs, according to the PTX ISA manual.
fn need(opcode: &str) -> Option<Need> {
    let mut parts = opcode.split('.');
    let name = parts.next()?;
    let parts: Vec<&str> = parts.collect();
    let has = |part: &str| parts.contains(&part);
    let any = |wanted: &[&str]| wanted.iter().any(|part| has(part));
    let bytes = any(&["e4m3", "e5m2", "e4m3x2", "e5m2x2"]);
    let brain = any(&["bf16", "bf16x2"]);
    let first = match name {
        "wgmma" => return Some(Need::Only(90)),
        "setmaxnreg" => return Some(Need::LetteredFrom(90)),
        "cp" if has("bulk") => 90,
        "cp" | "createpolicy" | "redux" | "discard" | "applypriority" => 80,
        "mbarrier" if any(&["try_wait", "expect_tx", "complete_tx", "cluster", "shared::cluster"]) => 90,
        "mbarrier" => 80,
        "barrier" if has("cluster") => 90,
        "fence" if has("proxy") && any(&["async", "async::generic"]) || has("mbarrier_init") => 90,
        "mapa" | "getctarank" | "elect" | "griddepcontrol" | "stmatrix" => 90,
        "ld" | "st" | "atom" | "red" | "cvta" | "isspacep" if has("shared::cluster") => 90,
        "atom" | "red" if brain => 90,
        "atom" | "red" if has("f16") => 70,
        "wmma" if brain || any(&["tf32", "f64", "and"]) => 80,
        "wmma" if any(&["s4", "u4", "b1"]) => 75,
        "wmma" if any(&["s8", "u8", "s32"]) => 72,
        "wmma" => 70,
        "mma" if has("f64") => {
            if any(&["m16n8k4", "m16n8k8", "m16n8k16"]) {
                90
            } else {
                80
            }
        }
        "mma" if any(&["s4", "u4", "b1"]) => {
            if any(&["m8n8k32", "m8n8k128"]) && !has("and") {
                75
            } else {
                80
            }
        }
        "mma" if bytes => 89,
        "mma" if brain || has("tf32") => 80,
        // Turing has only the smallest shape of each type.
        "mma" if any(&["m16n8k16", "m16n8k32"]) => 80,
        "mma" | "ldmatrix" | "tanh" => 75,
        "cvt" if bytes => 89,
        "cvt" if brain || has("tf32") => 80,
        "add" | "sub" | "mul" | "ex2" if brain => 90,
        "fma" | "neg" | "abs" | "min" | "max" if brain => 80,
        "min" | "max" if any(&["f16", "f16x2"]) => 80,
        "ex2" if any(&["f16", "f16x2"]) => 75,
        "match" | "nanosleep" | "fence" => 70,
        "ld" | "st" if any(&["relaxed", "acquire", "release"]) => 70,
        _ => return None,
    };
    Some(Need::From(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_with_letters() {
        assert!(Need::Only(90).is_met("sm_90a") && !Need::Only(90).is_met("sm_90"));
        assert!(!Need::Only(90).is_met("sm_100a"));
        assert!(Need::LetteredFrom(90).is_met("sm_100f") && !Need::LetteredFrom(90).is_met("sm_100"));
        assert!(Need::From(80).is_met("sm_90a") && !Need::From(80).is_met("sm_75"));
    }
}
