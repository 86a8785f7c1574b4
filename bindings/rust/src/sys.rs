//! The C interface: structures and functions of `tilewright.h`, and libraries opened by path.

use crate::Dtype;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const VERSION: i32 = 1;

#[repr(C)]
pub struct RawTensor {
    pub data: *mut c_void,
    pub device: [i32; 2],
    pub ndim: i32,
    pub dtype: Dtype,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

impl RawTensor {
    pub fn new(data: *mut c_void, dtype: Dtype, shape: &[i64]) -> Self {
        let (ndim, shape) = (shape.len() as i32, shape.as_ptr() as *mut i64);
        RawTensor { data, device: [1, 0], ndim, dtype, shape, strides: ptr::null_mut(), byte_offset: 0 }
    }

    pub fn empty() -> Self {
        RawTensor::new(ptr::null_mut(), Dtype::FLOAT32, &[])
    }
}

#[repr(C)]
pub struct RawSpec {
    pub name: *const c_char,
    pub dtype: Dtype,
    pub ndim: i32,
    pub shape: *const i64,
    pub dims: *const *const c_char,
}

#[repr(C)]
pub struct Options {
    pub threads: i32,
    pub profile: i32,
    pub parallel_for: *const c_void,
    pub parallel_context: *const c_void,
}

pub type Run = unsafe extern "C" fn(*mut c_void, *const RawTensor, i32, *mut RawTensor, i32) -> i32;
pub type Describe = unsafe extern "C" fn(*const c_void, i32, *mut RawSpec) -> i32;

macro_rules! functions {
    ($($field:ident = $name:literal: $type:ty;)*) => {
        pub struct Functions { $(pub $field: $type),* }

        impl Library {
            /// They must not be used after the library.
            pub fn functions(&self) -> Result<Functions, String> {
                let functions = Functions {
                    $($field: unsafe { std::mem::transmute::<*mut c_void, $type>(self.symbol($name)?) }),*
                };
                match unsafe { (functions.version)() } {
                    VERSION => Ok(functions),
                    other => Err(format!("expected version {VERSION} of the interface, got {other}")),
                }
            }
        }
    };
}
functions! {
    version = "tw_version": unsafe extern "C" fn() -> i32;
    error = "tw_error": unsafe extern "C" fn() -> *const c_char;
    load = "tw_model_load": unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> i32;
    free = "tw_model_free": unsafe extern "C" fn(*mut c_void);
    manifest = "tw_model_manifest": unsafe extern "C" fn(*const c_void) -> *const c_char;
    input_count = "tw_model_input_count": unsafe extern "C" fn(*const c_void) -> i32;
    output_count = "tw_model_output_count": unsafe extern "C" fn(*const c_void) -> i32;
    input = "tw_model_input": Describe;
    output = "tw_model_output": Describe;
    create = "tw_session_create": unsafe extern "C" fn(*mut c_void, *const Options, *mut *mut c_void) -> i32;
    free_session = "tw_session_free": unsafe extern "C" fn(*mut c_void);
    run = "tw_session_run": Run;
    shapes = "tw_session_shapes": Run;
}

extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn dlerror() -> *const c_char;
}

const NOW_AND_LOCAL: c_int = if cfg!(target_os = "macos") { 2 | 4 } else { 2 };

/// An open library.
pub struct Library(*mut c_void);

impl Library {
    /// Runs what a library runs when it is opened.
    pub unsafe fn open(path: &Path) -> Result<Library, String> {
        let place = std::path::absolute(path).map_err(|e| e.to_string())?;
        let name = CString::new(place.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let library = dlopen(name.as_ptr(), NOW_AND_LOCAL);
        if library.is_null() {
            Err(text(dlerror()))
        } else {
            Ok(Library(library))
        }
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void, String> {
        let found = CString::new(name).map(|n| unsafe { dlsym(self.0, n.as_ptr()) });
        found.ok().filter(|f| !f.is_null()).ok_or_else(|| format!("there is no {name} in it"))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        unsafe { dlclose(self.0) };
    }
}

pub unsafe fn text(chars: *const c_char) -> String {
    CStr::from_ptr(chars).to_string_lossy().into_owned()
}
