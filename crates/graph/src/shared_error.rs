//! The cause of an error, kept whole.

use std::{error::Error, fmt, sync::Arc};

/// An error of another library, or a sentence, as the cause of one of ours.
///
/// Our errors can be cloned and compared, which most causes cannot. This one is shared between clones, and two are equal
/// if they say the same. Its [`source`](Error::source) is the original, which can be downcast.
#[derive(Clone)]
pub struct SharedError(Arc<dyn Error + Send + Sync>);

impl SharedError {
    /// Keeps a cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SharedError(Arc::from(cause.into()))
    }
}

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SharedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl PartialEq for SharedError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.to_string() == other.to_string()
    }
}

impl Eq for SharedError {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_cause_can_be_found_again() {
        let error = SharedError::new(io::Error::new(io::ErrorKind::StorageFull, "no room"));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert_eq!(error.to_string(), "no room");
    }

    #[test]
    fn two_are_equal_if_they_say_the_same() {
        let error = SharedError::new("no room");
        assert_eq!(error, error.clone());
        assert_eq!(error, SharedError::new("no room".to_owned()));
        assert_ne!(error, SharedError::new("no time"));
    }
}
