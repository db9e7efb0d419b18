pub(crate) mod attention;
