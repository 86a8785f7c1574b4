// Package tilewright runs models that tilewright exported: shared libraries, opened by path. Linux and macOS.
//
//	model, err := tilewright.Load("model.so")
//	session, err := model.NewSession(0)
//	outputs, err := session.Run([]tilewright.Tensor{tilewright.New(make([]float32, 4*32), 4, 32)})
//	y := tilewright.Values[float32](outputs[0])
//
// Models and sessions may be used by any number of goroutines; runs of one session take turns.
package tilewright

/*
#cgo CFLAGS: -I${SRCDIR}/../../tilewright/deploy/native
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "tilewright_dl.h"

// Go calls functions, not pointers to them.
static tw_status load(tw_library *lib, const char *path, tw_model **model) { return lib->model_load(path, model); }
static void free_model(tw_library *lib, tw_model *model) { lib->model_free(model); }
static const char *manifest(tw_library *lib, tw_model *model) { return lib->model_manifest(model); }
static const char *error(tw_library *lib) { return lib->error(); }
static int32_t count(tw_library *lib, tw_model *model, int output) {
  return output ? lib->model_output_count(model) : lib->model_input_count(model);
}
static tw_status describe(tw_library *lib, tw_model *model, int output, int32_t index, tw_spec *spec) {
  return (output ? lib->model_output : lib->model_input)(model, index, spec);
}
static tw_status create(tw_library *lib, tw_model *model, int32_t threads, tw_session **session) {
  tw_options options = {threads, 0, NULL, NULL};
  return lib->session_create(model, &options, session);
}
static void free_session(tw_library *lib, tw_session *session) { lib->session_free(session); }
static tw_status run(tw_library *lib, tw_session *session, int shapes, tw_tensor *in, int32_t ins, tw_tensor *out, int32_t outs) {
  return (shapes ? lib->session_shapes : lib->session_run)(session, in, ins, out, outs);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"unsafe"
)

// Statuses of tilewright.h.
const (
	InvalidArgument = 1
	InvalidInput    = 2
	InvalidArtifact = 3
)

// Error is what failed, with its status of tilewright.h.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

// DType is the type of elements as DLPack numbers it: code 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
type DType struct{ Code, Bits uint8 }

func (d DType) String() string {
	switch names := []string{"int", "uint", "float", "handle", "bfloat", "complex"}; {
	case d.Code == 6:
		return "bool"
	case int(d.Code) < len(names):
		return names[d.Code] + strconv.Itoa(int(d.Bits))
	}
	return fmt.Sprintf("code%d_%d", d.Code, d.Bits)
}

// Element is a Go type that tensors have elements of.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool
}

// DTypeOf is the type of elements that T is.
func DTypeOf[T Element]() DType {
	var zero T
	code := uint8(1)
	switch any(zero).(type) {
	case float32, float64:
		code = 2
	case int8, int16, int32, int64:
		code = 0
	case bool:
		code = 6
	}
	return DType{code, uint8(8 * unsafe.Sizeof(zero))}
}

// Tensor is dense: the last index is fastest. Data are the bytes of its elements, which for types without a Go type, as
// bfloat16, are filled in by the caller.
type Tensor struct {
	DType DType
	Shape []int64
	Data  []byte
}

// New is a tensor that shares the memory of data.
func New[T Element](data []T, shape ...int64) Tensor {
	var zero T
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(zero)))
	return Tensor{DTypeOf[T](), shape, bytes}
}

// Values are the elements of a tensor, in its memory. Panics if they are not of type T.
func Values[T Element](t Tensor) []T {
	if t.DType != DTypeOf[T]() {
		panic(fmt.Sprintf("tilewright: expected elements of type %v, got %v", DTypeOf[T](), t.DType))
	}
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/int(unsafe.Sizeof(zero)))
}

// Spec is an input or output of a model. A size that is not fixed is -1 in Shape; Dims has its name or formula, and the
// numbers of the others. Both are nil where even the rank is known only after a run.
type Spec struct {
	Name  string
	DType DType
	Shape []int64
	Dims  []string
}

// Model is code and weights. It must be closed.
type Model struct {
	Inputs, Outputs []Spec
	loaded          *loaded
}

// loaded is a library and its model, with how many hold it: the Model and its sessions.
type loaded struct {
	lib   *C.tw_library
	model *C.tw_model
	mutex sync.Mutex
	users int
}

// Load opens a library. An artifact is machine code, which this runs: open only what you trust.
func Load(path string) (*Model, error) { return open(path, nil) }

// LoadWith does the same through libtilewright, which opens packages too, and looks at digests before it runs anything;
// loader is its path.
func LoadWith(loader, path string) (*Model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return open(loader, name)
}

func open(library string, path *C.char) (*Model, error) {
	lib := (*C.tw_library)(C.calloc(1, C.sizeof_tw_library))
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	if status := C.tw_library_open(lib, name); status != 0 {
		defer C.free(unsafe.Pointer(lib))
		return nil, &Error{int(status), C.GoString(&lib.message[0])}
	}
	l := &loaded{lib: lib, users: 1}
	m := &Model{loaded: l}
	err := l.try(func() C.tw_status { return C.load(lib, path, &l.model) })
	if err == nil {
		m.Inputs, err = l.specs(0)
	}
	if err == nil {
		m.Outputs, err = l.specs(1)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// try calls a function that can fail; its message belongs to the thread of the system.
func (l *loaded) try(function func() C.tw_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := function(); status != 0 {
		return &Error{int(status), C.GoString(C.error(l.lib))}
	}
	return nil
}

func (l *loaded) specs(output C.int) ([]Spec, error) {
	specs := make([]Spec, C.count(l.lib, l.model, output))
	for i := range specs {
		var s C.tw_spec
		if err := l.try(func() C.tw_status { return C.describe(l.lib, l.model, output, C.int32_t(i), &s) }); err != nil {
			return nil, err
		}
		spec := Spec{Name: C.GoString(s.name), DType: DType{uint8(s.dtype.code), uint8(s.dtype.bits)}}
		if s.ndim > 0 {
			for k, dim := range unsafe.Slice(s.dims, s.ndim) {
				size := int64(unsafe.Slice(s.shape, s.ndim)[k])
				text := strconv.FormatInt(size, 10)
				if dim != nil {
					text = C.GoString(dim)
				}
				spec.Shape, spec.Dims = append(spec.Shape, size), append(spec.Dims, text)
			}
		} else if s.ndim == 0 {
			spec.Shape, spec.Dims = []int64{}, []string{}
		}
		specs[i] = spec
	}
	return specs, nil
}

// hold counts a user more (1) or less (-1): the last one frees the model and closes the library.
func (l *loaded) hold(change int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.users += change; l.users == 0 {
		C.free_model(l.lib, l.model)
		C.tw_library_close(l.lib)
		C.free(unsafe.Pointer(l.lib))
	}
}

// Manifest is JSON: digest and names of the model, version, target, what each kernel is.
func (m *Model) Manifest() string { return C.GoString(C.manifest(m.loaded.lib, m.loaded.model)) }

// Close gives the model back, as soon as its sessions are closed too. It must not be used afterwards.
func (m *Model) Close() {
	if m.loaded != nil {
		m.loaded.hold(-1)
		m.loaded = nil
	}
}

// Session is what one run needs: intermediate values and threads. It must be closed.
type Session struct {
	loaded  *loaded
	session *C.tw_session
	outputs int
	mutex   sync.Mutex
}

// NewSession makes a session with so many threads; 0 for as many as the model was built for.
func (m *Model) NewSession(threads int) (*Session, error) {
	if m.loaded == nil {
		return nil, &Error{InvalidArgument, "the model is closed"}
	}
	s := &Session{loaded: m.loaded, outputs: len(m.Outputs)}
	err := s.loaded.try(func() C.tw_status { return C.create(m.loaded.lib, m.loaded.model, C.int32_t(threads), &s.session) })
	if err != nil {
		return nil, err
	}
	s.loaded.hold(1)
	return s, nil
}

// Close waits for a run, and gives the session back.
func (s *Session) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.session != nil {
		C.free_session(s.loaded.lib, s.session)
		s.loaded.hold(-1)
		s.session = nil
	}
}

// Run is one run, in the order of the model's inputs and outputs. The results are the caller's.
func (s *Session) Run(inputs []Tensor) ([]Tensor, error) {
	var results []Tensor
	err := s.call(inputs, nil, 0, func(out []C.tw_tensor) {
		for _, t := range out {
			results = append(results, copied(t))
		}
	})
	return results, err
}

// RunInto is the same with results in memory of the caller's, which must have their shapes.
func (s *Session) RunInto(inputs, outputs []Tensor) error {
	return s.call(inputs, outputs, 0, func([]C.tw_tensor) {})
}

// Shapes are those of the outputs for inputs of these types and shapes, without a run; nil for one that depends on what
// inputs hold. Data of the inputs may be nil.
func (s *Session) Shapes(inputs []Tensor) ([][]int64, error) {
	var shapes [][]int64
	err := s.call(inputs, nil, 1, func(out []C.tw_tensor) {
		for _, t := range out {
			shapes = append(shapes, shapeOf(t))
		}
	})
	return shapes, err
}

func (s *Session) call(inputs, outputs []Tensor, shapes C.int, take func([]C.tw_tensor)) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.session == nil {
		return &Error{InvalidArgument, "the session is closed"}
	}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	in, err := views(inputs, &pinned, shapes == 0)
	if err != nil {
		return err
	}
	out := make([]C.tw_tensor, s.outputs)
	if outputs != nil {
		if out, err = views(outputs, &pinned, true); err != nil {
			return err
		}
	}
	err = s.loaded.try(func() C.tw_status {
		return C.run(s.loaded.lib, s.session, shapes, unsafe.SliceData(in), C.int32_t(len(in)), unsafe.SliceData(out), C.int32_t(len(out)))
	})
	if err == nil {
		take(out)
	}
	return err
}

// views are tensors as C has them, in memory that stays where it is until pinned is unpinned.
func views(tensors []Tensor, pinned *runtime.Pinner, withData bool) ([]C.tw_tensor, error) {
	out := make([]C.tw_tensor, len(tensors))
	for i, t := range tensors {
		size := (int64(t.DType.Bits) + 7) / 8
		for _, n := range t.Shape {
			size *= n
		}
		if withData && size != int64(len(t.Data)) {
			return nil, &Error{InvalidArgument, fmt.Sprintf("expected %d bytes for a tensor of shape %v, got %d", size, t.Shape, len(t.Data))}
		}
		out[i].device._type = 1
		out[i].ndim = C.int32_t(len(t.Shape))
		out[i].dtype = C.tw_dtype{C.uint8_t(t.DType.Code), C.uint8_t(t.DType.Bits), 1}
		if len(t.Shape) > 0 {
			pinned.Pin(&t.Shape[0])
			out[i].shape = (*C.int64_t)(&t.Shape[0])
		}
		if len(t.Data) > 0 {
			pinned.Pin(&t.Data[0])
			out[i].data = unsafe.Pointer(&t.Data[0])
		}
	}
	return out, nil
}

func shapeOf(t C.tw_tensor) []int64 {
	if t.ndim < 0 {
		return nil
	}
	shape := make([]int64, t.ndim)
	copy(shape, unsafe.Slice((*int64)(t.shape), t.ndim))
	return shape
}

func copied(t C.tw_tensor) Tensor {
	size := (int(t.dtype.bits) + 7) / 8
	for _, n := range unsafe.Slice(t.shape, t.ndim) {
		size *= int(n)
	}
	data := make([]int64, (size+7)/8) // aligned for every type
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), size)
	copy(bytes, unsafe.Slice((*byte)(t.data), size))
	return Tensor{DType{uint8(t.dtype.code), uint8(t.dtype.bits)}, shapeOf(t), bytes}
}
