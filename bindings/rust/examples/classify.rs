//! Classifies an image with an exported network of ImageNet's kind (resnet50 and others).
//!
//!     cargo run --release --example classify -- model.so picture.ppm
//!
//! A picture is P6, of any size; other files are float32 values of the network's input, already normalized.

use std::error::Error;
use tilewright::{Dim, Model, Tensor};

const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// The nearest pixels of a picture, as planes of normalized red, green and blue.
fn read_picture(bytes: &[u8], height: usize, width: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    let (mut at, mut sizes) = (2, [0usize; 3]);
    for size in &mut sizes {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        *size = std::str::from_utf8(&bytes[start..at])?.parse()?;
    }
    let [w, h, most] = sizes;
    let pixels = bytes.get(at + 1..).unwrap_or_default();
    if most != 255 || pixels.len() < w * h * 3 {
        return Err("expected a whole PPM of 8 bits".into());
    }
    let mut x = Vec::with_capacity(3 * height * width);
    for c in 0..3 {
        for i in 0..height {
            for j in 0..width {
                let value = pixels[(i * h / height * w + j * w / width) * 3 + c];
                x.push((f32::from(value) / 255.0 - MEAN[c]) / DEVIATION[c]);
            }
        }
    }
    Ok(x)
}

fn classify(path: &str, image: &str) -> Result<(), Box<dyn Error>> {
    let model = unsafe { Model::load(path)? }; // machine code: a file that you trust
    let Some([_, _, Dim::Fixed(height), Dim::Fixed(width)]) = model.inputs()[0].shape.as_deref() else {
        return Err("expected a network for images".into());
    };
    let bytes = std::fs::read(image)?;
    let x = if bytes.starts_with(b"P6") {
        read_picture(&bytes, *height as usize, *width as usize)?
    } else {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };

    let mut session = model.session(0)?;
    let outputs = session.run(&[Tensor::new(&x, &[1, 3, *height, *width])?])?;
    let scores = outputs[0].data::<f32>()?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    for &class in order.iter().take(5) {
        println!("{class:4} {:9.4}", scores[class]);
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.as_slice() {
        [path, image] => classify(path, image),
        _ => Err("usage: classify MODEL IMAGE".into()),
    };
    if let Err(e) = done {
        eprintln!("classify: {e}");
        std::process::exit(1);
    }
}
