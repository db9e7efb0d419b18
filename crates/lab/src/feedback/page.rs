//! Feedback as a page.
