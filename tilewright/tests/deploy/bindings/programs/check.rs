//! What every binding is tried with; see test_bindings.py.

use tilewright::{Element, Error, Model, Session, Spec, Tensor, TensorMut};

fn show(what: &str, specs: &[Spec]) {
    for s in specs {
        let dims: Vec<String> = s.shape.iter().flatten().map(ToString::to_string).collect();
        println!("{what} {} {} [{}]", s.name, s.dtype, dims.join(", "));
    }
}

fn values(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn keep(path: &str, values: &[f32]) {
    std::fs::write(path, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}

fn sessions(words: &[String]) -> Result<(Session, Session), Error> {
    let (first, second) = unsafe { (Model::load(&words[0])?, Model::load(&words[1])?) };
    for model in [&first, &second] {
        show("input", model.inputs());
        show("output", model.outputs());
    }
    Ok((first.session(2)?, second.session(1)?)) // they keep what they need
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut a, mut b) = sessions(&words)?;
    let (x, picture) = (values(&words[2]), values(&words[3]));
    println!("shapes {:?}", a.shapes(&[(f32::DTYPE, &[7, 32])])?[0].as_ref().unwrap());
    let beside = std::thread::spawn(move || {
        for _ in 0..20 {
            b.run(&[Tensor::new(&picture, &[1, 3, 32, 32]).unwrap()]).unwrap();
        }
        let out = b.run(&[Tensor::new(&picture, &[1, 3, 32, 32]).unwrap()]).unwrap();
        keep("scores.bin", out[0].data().unwrap());
    });
    keep("y.bin", a.run(&[Tensor::new(&x, &[5, 32])?])?[0].data()?);
    beside.join().unwrap();
    let mut y = [0f32; 50];
    a.run_into(&[Tensor::new(&x, &[5, 32])?], vec![TensorMut::new(&mut y, &[5, 10])?])?;
    keep("given.bin", &y);
    let mut packed = unsafe { Model::load_with(&words[4], &words[5])? }.session(1)?;
    keep("packed.bin", packed.run(&[Tensor::new(&x, &[5, 32])?])?[0].data()?);
    let refused = a.run(&[Tensor::new(&x[..155], &[5, 31])?]).err().unwrap();
    println!("error {} {refused}", refused.status);
    let unfit = vec![TensorMut::new(&mut y[..45], &[5, 9])?];
    let refused = a.run_into(&[Tensor::new(&x, &[5, 32])?], unfit).err().unwrap();
    println!("error {} {refused}", refused.status);
    println!("error {}", unsafe { Model::load("lost.so") }.err().unwrap().status);
    let refused = unsafe { Model::load_with(&words[4], "damaged.so") }.err().unwrap();
    println!("error {} {refused}", refused.status);
    assert_eq!(Tensor::new(&x, &[5, 33]).err().unwrap().status, tilewright::INVALID_ARGUMENT);
    Ok(())
}
