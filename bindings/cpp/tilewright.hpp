// tilewright.hpp: exported models in C++17, opened by path. Header only; needs tilewright.h and tilewright_dl.h beside it.
//
//   tilewright::Model model("model.so");
//   tilewright::Session session(model);
//   std::vector<float> x(4 * 32);
//   auto outputs = session.run({tilewright::Tensor(x, {4, 32})});
//   const float *y = outputs[0].data<float>();
//
// A model may be used by any number of threads, a session by one at a time. What fails throws tilewright::Error.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tilewright_dl.h"

namespace tilewright {

using Shape = std::vector<std::int64_t>;

// What failed, and the status of tilewright.h.
class Error : public std::runtime_error {
 public:
  Error(tw_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
  tw_status status() const noexcept { return status_; }

 private:
  tw_status status_;
};

inline bool operator==(tw_dtype a, tw_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

// float32, int64, bool and so on; narrow floats by their number in DLPack.
inline std::string text(tw_dtype dtype) {
  static const char *const kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  if (dtype.code == 6) return "bool";
  return (dtype.code < 7 ? kinds[dtype.code] : "code" + std::to_string(dtype.code) + "_") + std::to_string(dtype.bits);
}

template <class T>
constexpr tw_dtype dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "a tensor's elements are numbers or bool");
  constexpr std::uint8_t code = std::is_same_v<T, bool> ? 6 : std::is_floating_point_v<T> ? 2 : std::is_unsigned_v<T>;
  return {code, 8 * sizeof(T), 1};
}

// A view of memory of somebody else's: dense, the last index is fastest.
class Tensor {
 public:
  // Memory of `shape`'s size. `dtype` is for elements that C++ has no type for, float16 as std::uint16_t for example.
  template <class T>
  Tensor(T *data, Shape shape, tw_dtype dtype = dtype_of<std::remove_const_t<T>>())
      : data_(const_cast<std::remove_const_t<T> *>(data)), shape_(std::move(shape)), dtype_(dtype) {}

  // All of a vector, which stays where it is. Throws Error if it is not of the size of `shape`.
  template <class T>
  Tensor(std::vector<T> &values, Shape shape) : Tensor(values.data(), std::move(shape)) {
    if (values.size() != size()) {
      std::string expected = "expected " + std::to_string(size()) + " elements for the shape of a tensor";
      throw Error(TW_INVALID_ARGUMENT, expected + ", got " + std::to_string(values.size()));
    }
  }

  const Shape &shape() const { return shape_; }
  tw_dtype dtype() const { return dtype_; }
  void *raw() const { return data_; }
  std::size_t size() const {
    std::size_t elements = 1;
    for (auto n : shape_) elements *= static_cast<std::size_t>(n);
    return elements;
  }

  // The elements. Throws Error if they are not of type T.
  template <class T>
  T *data() const {
    if (!(dtype_ == dtype_of<T>()))
      throw Error(TW_INVALID_ARGUMENT, "expected elements of type " + text(dtype_of<T>()) + ", got " + text(dtype_));
    return static_cast<T *>(data_);
  }

 private:
  void *data_;
  Shape shape_;
  tw_dtype dtype_;
};

// An input or output of a model. shape[i] is -1 where the size is not fixed, dims[i] its name or formula then. Without
// `has_rank` even the rank is known only after a run.
struct Spec {
  std::string name;
  tw_dtype dtype;
  bool has_rank;
  Shape shape;
  std::vector<std::string> dims;
};

// Opens a library and the model in it. An artifact is machine code, which this runs: open only what you trust. Copies are
// the same model; it is freed with the last of them and of its sessions. `loader`: the path of a libtilewright, which opens
// packages too, and looks at digests before it runs anything.
class Model {
 public:
  explicit Model(const std::string &path, const std::string &loader = "") : inside_(std::make_shared<Inside>(path, loader)) {
    const tw_library &lib = inside_->lib;
    for (std::int32_t i = 0; i < lib.model_input_count(get()); i++) inputs_.push_back(spec(lib.model_input, i));
    for (std::int32_t i = 0; i < lib.model_output_count(get()); i++) outputs_.push_back(spec(lib.model_output, i));
  }

  const std::vector<Spec> &inputs() const { return inputs_; }
  const std::vector<Spec> &outputs() const { return outputs_; }
  std::string manifest() const { return inside_->lib.model_manifest(get()); }  // JSON
  tw_model *get() const { return inside_->model; }

 private:
  friend class Session;

  struct Inside {
    Inside(const std::string &path, const std::string &loader) {
      const char *library = loader.empty() ? path.c_str() : loader.c_str();
      if (tw_status status = tw_library_open(&lib, library)) throw Error(status, lib.message);
      if (tw_status status = lib.model_load(loader.empty() ? nullptr : path.c_str(), &model)) {
        Error error(status, lib.error());
        tw_library_close(&lib);
        throw error;
      }
    }
    Inside(const Inside &) = delete;
    ~Inside() {
      lib.model_free(model);
      tw_library_close(&lib);
    }
    void require(tw_status status) const {
      if (status != TW_OK) throw Error(status, lib.error());
    }
    tw_library lib;
    tw_model *model = nullptr;
  };

  template <class F>
  Spec spec(F function, std::int32_t index) const {
    tw_spec s;
    inside_->require(function(get(), index, &s));
    Spec out{s.name, s.dtype, s.ndim >= 0, {}, {}};
    for (std::int32_t i = 0; i < s.ndim; i++) {
      out.shape.push_back(s.shape[i]);
      out.dims.emplace_back(s.dims[i] ? s.dims[i] : std::to_string(s.shape[i]));
    }
    return out;
  }

  std::shared_ptr<Inside> inside_;
  std::vector<Spec> inputs_, outputs_;
};

// What one run needs: intermediate values and threads. Can be moved, not copied.
class Session {
 public:
  // threads: 0 for as many as the model was built for.
  explicit Session(const Model &model, int threads = 0) : session_(nullptr, Free{model.inside_}) {
    tw_options options{};
    options.threads = threads;
    tw_session *session = nullptr;
    model.inside_->require(lib().session_create(model.get(), &options, &session));
    session_.reset(session);
    outputs_ = model.outputs().size();
  }

  // One run, in the order of the model's inputs and outputs. The results lie in memory of the session: valid until it
  // runs again or ends.
  std::vector<Tensor> run(const std::vector<Tensor> &inputs) {
    std::vector<tw_tensor> out(outputs_);
    call(lib().session_run, inputs, out);
    std::vector<Tensor> results;
    for (const tw_tensor &t : out) results.emplace_back(static_cast<char *>(t.data), Shape(t.shape, t.shape + t.ndim), t.dtype);
    return results;
  }

  // The same with results in memory of the caller's, which must have their shapes.
  void run(const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs) {
    std::vector<tw_tensor> out = views(outputs);
    call(lib().session_run, inputs, out);
  }

  // Shapes of the outputs for inputs of these shapes, without a run. Throws Error for one that depends on their contents.
  std::vector<Shape> shapes(const std::vector<Tensor> &inputs) {
    std::vector<tw_tensor> out(outputs_);
    call(lib().session_shapes, inputs, out);
    std::vector<Shape> results;
    for (const tw_tensor &t : out) {
      if (t.ndim < 0) throw Error(TW_INVALID_INPUT, "the shape of an output depends on what the inputs hold");
      results.emplace_back(t.shape, t.shape + t.ndim);
    }
    return results;
  }

  tw_session *get() const { return session_.get(); }

 private:
  struct Free {
    std::shared_ptr<Model::Inside> inside;  // outlives the session
    void operator()(tw_session *session) const { inside->lib.session_free(session); }
  };

  const tw_library &lib() const { return session_.get_deleter().inside->lib; }

  static std::vector<tw_tensor> views(const std::vector<Tensor> &tensors) {
    std::vector<tw_tensor> out;
    for (const Tensor &t : tensors)
      out.push_back({t.raw(), {1, 0}, static_cast<std::int32_t>(t.shape().size()), t.dtype(),
                     const_cast<std::int64_t *>(t.shape().data()), nullptr, 0});
    return out;
  }

  template <class F>
  void call(F function, const std::vector<Tensor> &inputs, std::vector<tw_tensor> &out) {
    std::vector<tw_tensor> in = views(inputs);
    auto given = static_cast<std::int32_t>(in.size()), wanted = static_cast<std::int32_t>(out.size());
    session_.get_deleter().inside->require(function(get(), in.data(), given, out.data(), wanted));
  }

  std::unique_ptr<tw_session, Free> session_;
  std::size_t outputs_ = 0;
};

}  // namespace tilewright
