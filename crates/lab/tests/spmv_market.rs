//! Matrix Market files: what is read, what is refused, and where a message points.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use kinora_lab::spmv::{
    Csr,
    generate::{Kind, Recipe},
    market::{self, Limits, MarketError},
};

fn read(text: &str) -> Result<Csr<f64, i32>, MarketError> {
    market::read(text.as_bytes(), Some(text.len() as u64), Limits::default())
}

/// The matrix as rows of numbers.
fn dense(text: &str) -> Vec<Vec<f64>> {
    let matrix = read(text).unwrap();
    let mut rows = vec![vec![0.0; matrix.columns()]; matrix.rows()];
    for (row, numbers) in rows.iter_mut().enumerate() {
        for place in matrix.row(row) {
            numbers[matrix.indices()[place] as usize] += matrix.values()[place];
        }
    }
    rows
}

const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";

#[test]
fn every_kind_of_file_is_read() {
    let general = format!("{GENERAL}% a comment\n\n 2 3 3\n2 1 -1.5e1\n\n1 3 2\n% one more\n1 1 .5\n");
    assert_eq!(dense(&general), [[0.5, 0.0, 2.0], [-15.0, 0.0, 0.0]]);
    let crlf = general.replace('\n', "\r\n");
    assert_eq!(read(&crlf).unwrap(), read(&general).unwrap());
    // Without the end of the last line, in capitals, with tabs, and as Fortran writes exponents.
    let capitals = "%%MATRIXMARKET MATRIX COORDINATE REAL GENERAL\n2\t3\t1\n2\t3\t1.5D+1";
    assert_eq!(dense(capitals), [[0.0; 3], [0.0, 0.0, 15.0]]);
    let symmetric = "%%MatrixMarket matrix coordinate integer symmetric\n3 3 3\n1 1 7\n3 1 -2\n3 2 5\n";
    assert_eq!(dense(symmetric), [[7.0, 0.0, -2.0], [0.0, 0.0, 5.0], [-2.0, 5.0, 0.0]]);
    let skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 3\n";
    assert_eq!(dense(skew), [[0.0, -3.0], [3.0, 0.0]]);
    let pattern = "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 2\n2 1\n";
    assert_eq!(dense(pattern), [[0.0, 1.0], [1.0, 0.0]]);
    let array = "%%MatrixMarket matrix array real general\n2 3\n1\n2\n3\n0\n5\n6\n";
    assert_eq!(dense(array), [[1.0, 3.0, 5.0], [2.0, 0.0, 6.0]]);
    assert_eq!(read(array).unwrap().nonzeros(), 5);
    let array = "%%MatrixMarket matrix array integer symmetric\n3 3\n1\n2\n3\n4\n5\n6\n";
    assert_eq!(dense(array), [[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]]);
    let array = "%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n";
    assert_eq!(dense(array), [[0.0, -1.0, -2.0], [1.0, 0.0, -3.0], [2.0, 3.0, 0.0]]);
    // An entry that is listed twice counts twice.
    assert_eq!(dense(&format!("{GENERAL}1 1 2\n1 1 2\n1 1 3\n")), [[5.0]]);
    for empty in [format!("{GENERAL}0 0 0\n"), format!("{GENERAL}0 0 0")] {
        assert_eq!(read(&empty).unwrap().nonzeros(), 0);
    }
    assert_eq!(dense("%%MatrixMarket matrix array real general\n0 0\n"), Vec::<Vec<f64>>::new());
}

#[test]
fn what_was_written_is_read() {
    for (name, kind) in Kind::ALL {
        let recipe = Recipe { kind, rows: 3000, columns: 3000, nonzeros: 60_000, seed: 4 };
        let matrix: Csr<f32, i64> = recipe.generate().unwrap();
        let mut text = Vec::new();
        market::write(&matrix, &mut text).unwrap();
        let read: Csr<f32, i64> = market::read(text.as_slice(), None, Limits::default()).unwrap();
        assert!(read == matrix, "{name}");
    }
}

/// More than one block and many pieces, entries in reverse; the same on any number of threads.
#[test]
fn a_long_file_is_read_in_order() {
    let count = 900_000u32;
    let mut text = format!("{GENERAL}1000 1000 {count}\n");
    for place in (0..count).rev() {
        let (row, column) = (place / 1000 + 1, place % 1000 + 1);
        text += &format!("{row} {column} {place}\n");
    }
    assert!(text.len() > 10 << 20);
    let of = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| read(&text).unwrap())
    };
    let matrix = of(2);
    assert!(matrix.values().iter().enumerate().all(|(place, &value)| value == place as f64));
    assert!(of(1) == matrix);
    let broken = text.replacen("\n500 500 ", "\n500 x ", 1);
    let line = 2 + count - (499 * 1000 + 499);
    match read(&broken).unwrap_err() {
        MarketError::Line { line: found, .. } => assert_eq!(found, u64::from(line)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_message_names_the_line() {
    for (text, expected) in [
        ("", "the file is empty"),
        ("hello\n", "hello"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "complex"),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", "line 1"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", "line 1"),
        ("%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", "Hermitian"),
        ("%%MatrixMarket vector coordinate real general\n1 1 0\n", "line 1"),
        ("%%MatrixMarket matrix coordinate real general\n% only a comment", "line 2: the file ends"),
        ("%%MatrixMarket matrix coordinate real general\n1 1\n", "line 2: expected"),
        ("%%MatrixMarket matrix coordinate real general\n1 1 -1\n", "line 2: expected"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n2 1 1\n", "line 2: a symmetric"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n", "line 3: a symmetric"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n", "line 3: a skew"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n",
            "line 3: the row is not a number from 1 to 2",
        ),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1\n", "line 3: the row"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n\n1 99999999999999999999 1\n",
            "line 4: the column",
        ),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n  \n\n", "line 3: the value is missing"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 one\n",
            "line 3: the value is not a number",
        ),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 -inf\n",
            "line 3: the value is not finite",
        ),
        (
            "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 1 1.5\n",
            "line 3: the value is not a whole",
        ),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1 1\n", "line 3: there is more"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n% end.\n", "1 of 2"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n2 2 2\n", "more entries than the 1"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 \u{1b}[31m\n", "line 3"),
    ] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{text:?}: {message}");
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
}

/// None of these may allocate what it promises.
#[test]
fn hostile_sizes_are_refused() {
    let most = u64::MAX;
    for (sizes, expected) in [
        ("4294967296 1 0".to_owned(), "does not fit indices of type i32"),
        (format!("{most} {most} {most}"), "does not fit"),
        ("1000000 1000000 2000000000".to_owned(), "but at most"),
        ("1000000 1000000 500000000".to_owned(), "the file has only"),
        ("2000000000 1 1".to_owned(), "rows are too many"),
        ("1 2000000000 1".to_owned(), "columns are too many"),
    ] {
        let message = read(&format!("{GENERAL}{sizes}\n1 1 1\n")).unwrap_err().to_string();
        assert!(message.contains(expected), "{sizes}: {message}");
    }
    let array = format!("%%MatrixMarket matrix array real general\n{most} {most}\n1\n");
    assert!(read(&array).is_err());
    // Of a pipe nobody knows the length: memory grows with the entries.
    let text = format!("{GENERAL}1000 1000 400000000\n1 1 1\n");
    let message = market::read::<f64, i32>(text.as_bytes(), None, Limits::default()).unwrap_err().to_string();
    assert!(message.contains("1 of 400000000"), "{message}");
    let text = format!("{GENERAL}30 1 0\n");
    let limited = |matrix_bytes| market::read::<f64, i32>(text.as_bytes(), None, Limits { matrix_bytes });
    assert!(limited(124).is_ok());
    assert!(matches!(limited(123), Err(MarketError::TooLarge { bytes: 124, limit: 123, .. })));
    let long = format!("{GENERAL}{}\n1 1 0\n", "%".repeat(70_000));
    assert!(read(&long).unwrap_err().to_string().contains("line 2: the line is longer"));
    let long = format!("{GENERAL}1 1 1\n1 1 {}", "1".repeat(70_000));
    assert!(read(&long).unwrap_err().to_string().contains("line 3: the line is longer"));
}
