//! The chips that kernels are simulated for.

/// What a chip allows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its compute capability, such as 9.0.
    pub capability: (u32, u32),
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory that a block can have, in bytes.
    pub shared_bytes: usize,
    /// Blocks that a cluster can have; 1 where there are no clusters.
    pub cluster_blocks: u32,
}

impl Profile {
    fn new(
        name: &str,
        capability: (u32, u32),
        multiprocessors: u32,
        shared_kib: usize,
        cluster: u32,
    ) -> Profile {
        Profile {
            name: name.to_owned(),
            capability,
            multiprocessors,
            shared_bytes: shared_kib << 10,
            cluster_blocks: cluster,
        }
    }

    /// A Tesla T4 (Turing).
    pub fn t4() -> Profile {
        Profile::new("T4", (7, 5), 40, 64, 1)
    }

    /// A GeForce RTX 3090 (Ampere).
    pub fn rtx_3090() -> Profile {
        Profile::new("RTX 3090", (8, 6), 82, 99, 1)
    }

    /// A GeForce RTX 4090 (Ada).
    pub fn rtx_4090() -> Profile {
        Profile::new("RTX 4090", (8, 9), 128, 99, 1)
    }

    /// An A100 (Ampere).
    pub fn a100() -> Profile {
        Profile::new("A100", (8, 0), 108, 163, 1)
    }

    /// An H100 with 132 multiprocessors (Hopper).
    pub fn h100() -> Profile {
        Profile::new("H100", (9, 0), 132, 227, 16)
    }

    /// An H200 (Hopper).
    pub fn h200() -> Profile {
        Profile::new("H200", (9, 0), 132, 227, 16)
    }

    /// Whether it runs code for a target such as `sm_80` or `sm_90a`; those with a letter are for one generation alone.
    pub fn runs(&self, target: &str) -> bool {
        let Some(number) = target.strip_prefix("sm_") else { return false };
        let exact = number.ends_with(['a', 'f']);
        let Ok(number) = number.trim_end_matches(['a', 'f']).parse::<u32>() else { return false };
        let wanted = (number / 10, number % 10);
        if exact { wanted == self.capability } else { wanted <= self.capability }
    }
}
