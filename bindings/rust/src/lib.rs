//! Models that tilewright exported: shared libraries, opened by path. No crates but std; Linux and macOS.
//!
//! A [`Model`] may be used by any number of threads; a [`Session`] runs for one at a time, which `&mut` says.

mod sys;

use std::ffi::{c_void, CStr, CString};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, ptr, slice};
use sys::{text, Describe, Functions, Library, Options, RawSpec, RawTensor, Run};

/// What failed: `status` is a `tw_status` of `tilewright.h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

pub const INVALID_ARGUMENT: i32 = 1;
pub const INVALID_INPUT: i32 = 2;
pub const INVALID_ARTIFACT: i32 = 3;

fn error<T>(status: i32, message: String) -> Result<T, Error> {
    Err(Error { status, message })
}

/// The type of elements, as DLPack numbers it: code 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dtype {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

impl Dtype {
    pub const FLOAT32: Dtype = Dtype { code: 2, bits: 32, lanes: 1 };
    pub const FLOAT16: Dtype = Dtype { code: 2, bits: 16, lanes: 1 };
    pub const BFLOAT16: Dtype = Dtype { code: 4, bits: 16, lanes: 1 };
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            6 => f.write_str("bool"),
            code @ (0 | 1 | 2 | 4 | 5) => {
                write!(f, "{}{}", ["int", "uint", "float", "", "bfloat", "complex"][code as usize], self.bits)
            }
            code => write!(f, "code{code}_{}", self.bits),
        }
    }
}

/// A Rust type that tensors have elements of.
///
/// # Safety
/// `DTYPE` must say how the type lies in memory.
pub unsafe trait Element: Copy {
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($t:ty: $code:literal, $bits:literal;)*) => {
        $(unsafe impl Element for $t { const DTYPE: Dtype = Dtype { code: $code, bits: $bits, lanes: 1 }; })*
    };
}
elements! {
    f32: 2, 32; f64: 2, 64; i8: 0, 8; i16: 0, 16; i32: 0, 32; i64: 0, 64; u8: 1, 8; u16: 1, 16; u32: 1, 32; u64: 1, 64;
    bool: 6, 8;
}

fn require_elements(count: usize, shape: &[i64]) -> Result<(), Error> {
    let expected = shape.iter().try_fold(1usize, |all, &n| all.checked_mul(usize::try_from(n).ok()?));
    if expected == Some(count) {
        return Ok(());
    }
    error(INVALID_ARGUMENT, format!("expected as many elements as a tensor of shape {shape:?} has, got {count}"))
}

/// An input: a view of a slice.
#[repr(transparent)]
pub struct Tensor<'a>(RawTensor, PhantomData<&'a [u8]>);

impl<'a> Tensor<'a> {
    /// The last index is fastest. Fails if `data` is not of the size of `shape`.
    pub fn new<T: Element>(data: &'a [T], shape: &'a [i64]) -> Result<Self, Error> {
        require_elements(data.len(), shape)?;
        Ok(Tensor(RawTensor::new(data.as_ptr() as *mut c_void, T::DTYPE, shape), PhantomData))
    }

    /// The same bits as elements of another type of the same size: `u16` as [`Dtype::BFLOAT16`].
    pub fn with_dtype(mut self, dtype: Dtype) -> Result<Self, Error> {
        if dtype.bits != self.0.dtype.bits {
            return error(INVALID_ARGUMENT, format!("expected elements of the size of {}, got {dtype}", self.0.dtype));
        }
        self.0.dtype = dtype;
        Ok(self)
    }
}

/// Memory of the caller's for an output.
pub struct TensorMut<'a>(RawTensor, PhantomData<&'a mut [u8]>);

impl<'a> TensorMut<'a> {
    /// As [`Tensor::new`].
    pub fn new<T: Element>(data: &'a mut [T], shape: &'a [i64]) -> Result<Self, Error> {
        require_elements(data.len(), shape)?;
        Ok(TensorMut(RawTensor::new(data.as_mut_ptr() as *mut c_void, T::DTYPE, shape), PhantomData))
    }
}

/// An output in memory of the session's: it borrows the session, so that it cannot be used after the next run.
pub struct View<'s>(RawTensor, PhantomData<&'s [u8]>);

impl<'s> View<'s> {
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    pub fn shape(&self) -> &'s [i64] {
        unsafe { borrowed(self.0.shape, self.0.ndim as usize) }
    }

    /// The elements. Fails if they are not of type `T`.
    pub fn data<T: Element>(&self) -> Result<&'s [T], Error> {
        if T::DTYPE != self.0.dtype {
            return error(INVALID_ARGUMENT, format!("expected elements of type {}, got {}", T::DTYPE, self.0.dtype));
        }
        let count = self.shape().iter().product::<i64>() as usize;
        Ok(unsafe { borrowed(self.0.data as *const T, count) })
    }
}

/// A slice of what C gives, which may be null where it is empty.
unsafe fn borrowed<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, count)
    }
}

/// A size of a [`Spec`]: a number, or the name or formula of one that is not fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    Fixed(i64),
    Symbolic(String),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Symbolic(name) => f.write_str(name),
        }
    }
}

/// An input or output of a model. `shape` is None where even the rank is known only after a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Option<Vec<Dim>>,
}

/// A model in its library. Fields are dropped in their order, after `drop`: the library last.
struct Loaded {
    model: *mut c_void,
    functions: Functions,
    _library: Library,
}

unsafe impl Send for Loaded {} // a model is never written to
unsafe impl Sync for Loaded {}

impl Loaded {
    fn require(&self, status: i32) -> Result<(), Error> {
        if status == 0 {
            Ok(())
        } else {
            error(status, unsafe { text((self.functions.error)()) })
        }
    }

    fn specs(&self, count: i32, describe: Describe) -> Result<Vec<Spec>, Error> {
        (0..count)
            .map(|i| unsafe {
                let mut raw = std::mem::zeroed::<RawSpec>();
                self.require(describe(self.model, i, &mut raw))?;
                let dim = |i: usize| match *raw.shape.add(i) {
                    -1 => Dim::Symbolic(text(*raw.dims.add(i))),
                    n => Dim::Fixed(n),
                };
                let shape = usize::try_from(raw.ndim).ok().map(|rank| (0..rank).map(dim).collect());
                Ok(Spec { name: text(raw.name), dtype: raw.dtype, shape })
            })
            .collect()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        unsafe { (self.functions.free)(self.model) };
    }
}

/// A model: its code and weights. Freed with the last of it and of its sessions.
pub struct Model {
    loaded: Arc<Loaded>,
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
}

impl Model {
    /// Open a library.
    ///
    /// # Safety
    /// An artifact is machine code, which this runs: its digests find damage, not malice. `path` must be an artifact that
    /// you trust, and the file must not be written to while it is open.
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Model, Error> {
        Model::open(path.as_ref(), None)
    }

    /// The same through libtilewright, which opens packages too, and looks at digests before it runs anything. `loader`: its
    /// path.
    ///
    /// # Safety
    /// As of [`Model::load`], of both files.
    pub unsafe fn load_with(loader: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Model, Error> {
        let name = CString::new(path.as_ref().as_os_str().as_bytes());
        let name = name.map_err(|e| Error { status: INVALID_ARGUMENT, message: e.to_string() })?;
        Model::open(loader.as_ref(), Some(&name))
    }

    unsafe fn open(library: &Path, path: Option<&CStr>) -> Result<Model, Error> {
        let opened = Library::open(library).and_then(|library| Ok((library.functions()?, library)));
        let (functions, open) = opened.map_err(|why| Error {
            status: INVALID_ARTIFACT,
            message: format!("{}: expected an artifact: {why}", library.display()),
        })?;
        let mut loaded = Loaded { model: ptr::null_mut(), functions, _library: open };
        let status = (loaded.functions.load)(path.map_or(ptr::null(), CStr::as_ptr), &mut loaded.model);
        loaded.require(status)?;
        let (f, model) = (&loaded.functions, loaded.model);
        let inputs = loaded.specs((f.input_count)(model), f.input)?;
        let outputs = loaded.specs((f.output_count)(model), f.output)?;
        Ok(Model { loaded: Arc::new(loaded), inputs, outputs })
    }

    pub fn inputs(&self) -> &[Spec] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[Spec] {
        &self.outputs
    }

    /// JSON: digest and names of the model, version, target, what each kernel is.
    pub fn manifest(&self) -> String {
        unsafe { text((self.loaded.functions.manifest)(self.loaded.model)) }
    }

    /// What one run needs. `threads`: 0 for as many as the model was built for.
    pub fn session(&self, threads: usize) -> Result<Session, Error> {
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        let options = Options { threads, profile: 0, parallel_for: ptr::null(), parallel_context: ptr::null() };
        let mut session = ptr::null_mut();
        let loaded = self.loaded.clone();
        loaded.require(unsafe { (loaded.functions.create)(loaded.model, &options, &mut session) })?;
        Ok(Session { session, loaded, outputs: self.outputs.len() })
    }
}

/// Intermediate values and threads of one run at a time.
pub struct Session {
    session: *mut c_void,
    loaded: Arc<Loaded>,
    outputs: usize,
}

unsafe impl Send for Session {}

impl Session {
    /// One run, in the order of the model's inputs and outputs.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<View<'_>>, Error> {
        let mut out: Vec<_> = (0..self.outputs).map(|_| RawTensor::empty()).collect();
        self.call(self.loaded.functions.run, inputs, &mut out)?;
        Ok(out.into_iter().map(|raw| View(raw, PhantomData)).collect())
    }

    /// The same with results in the caller's memory, which must have their shapes.
    pub fn run_into(&mut self, inputs: &[Tensor], outputs: Vec<TensorMut>) -> Result<(), Error> {
        let mut out: Vec<_> = outputs.into_iter().map(|t| t.0).collect();
        self.call(self.loaded.functions.run, inputs, &mut out)
    }

    /// Shapes of the outputs for inputs of these types and shapes, without a run; None for one that depends on what inputs
    /// hold.
    pub fn shapes(&mut self, inputs: &[(Dtype, &[i64])]) -> Result<Vec<Option<Vec<i64>>>, Error> {
        let raw =
            |&(dtype, shape): &(Dtype, &[i64])| Tensor(RawTensor::new(ptr::null_mut(), dtype, shape), PhantomData);
        let inputs: Vec<_> = inputs.iter().map(raw).collect();
        let mut out: Vec<_> = (0..self.outputs).map(|_| RawTensor::empty()).collect();
        self.call(self.loaded.functions.shapes, &inputs, &mut out)?;
        let shape = |t: &RawTensor| usize::try_from(t.ndim).ok().map(|n| unsafe { borrowed(t.shape, n) }.to_vec());
        Ok(out.iter().map(shape).collect())
    }

    fn call(&self, function: Run, inputs: &[Tensor], out: &mut [RawTensor]) -> Result<(), Error> {
        let (given, wanted) = (inputs.len() as i32, out.len() as i32);
        let status =
            unsafe { function(self.session, inputs.as_ptr() as *const RawTensor, given, out.as_mut_ptr(), wanted) };
        self.loaded.require(status)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        unsafe { (self.loaded.functions.free_session)(self.session) };
    }
}
