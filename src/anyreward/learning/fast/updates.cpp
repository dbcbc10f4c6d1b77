// The updates of `update.py` compiled into one operation, for networks of `mlp` layers on a CPU.
//
// F and B are updated on two threads, which exchange F(s_i, a_i, z_i) and B(g) in each update. This is faster than
// splitting each of the small matrix products between two cores.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

using at::Tensor;
using std::vector;

namespace {

// One linear layer, and the layer normalisation after it (undefined tensors if there is none). Weights are transposed.
struct Layer {
  Tensor weight, bias, dweight, dbias;
  Tensor scale, shift, dscale, dshift;
};
using Network = vector<Layer>;

// Parameters in the order of `nn.Module.parameters()`: a layer starts with a matrix.
Network network(const vector<Tensor>& parameters, const vector<Tensor>& gradients) {
  Network layers;
  for (size_t i = 0; i < parameters.size(); i += 2) {
    bool linear = parameters[i].dim() == 2;
    if (linear) layers.emplace_back();
    Layer& layer = layers.back();
    (linear ? layer.weight : layer.scale) = linear ? parameters[i].t() : parameters[i];
    (linear ? layer.bias : layer.shift) = parameters[i + 1];
    if (gradients.empty()) continue;
    (linear ? layer.dweight : layer.dscale) = linear ? gradients[i].t() : gradients[i];
    (linear ? layer.dbias : layer.dshift) = gradients[i + 1];
  }
  return layers;
}

// The networks that F is the sum of: a deep one and, optionally, one with a single hidden layer.
vector<Network> parts(const Network& layers, size_t deep) {
  vector<Network> sum{Network(layers.begin(), layers.begin() + deep)};
  if (deep < layers.size()) sum.emplace_back(layers.begin() + deep, layers.end());
  return sum;
}

Tensor linear(const Layer& layer, const Tensor& x) { return at::addmm(layer.bias, x, layer.weight); }

void product_out(Tensor out, const Tensor& a, const Tensor& b) { at::mm_out(out, a, b); }
void sum_out(Tensor out, const Tensor& rows) { at::sum_out(out, rows, 0); }

// The gradients of a linear layer's parameters, from its input and the gradient of its output.
void linear_gradients(const Layer& layer, const Tensor& x, const Tensor& dy) {
  product_out(layer.dweight, x.t(), dy);
  sum_out(layer.dbias, dy);
}

// The same, and the gradient with respect to the input.
Tensor linear_back(const Layer& layer, const Tensor& x, const Tensor& dy) {
  linear_gradients(layer, x, dy);
  return dy.mm(layer.weight.t());
}

// Saved for the backward pass: the activations of hidden layers, and the inputs of layer normalisation.
struct Tape {
  vector<Tensor> hidden, before, mean, rstd;
};

bool columns(const Tensor& x) { return x.scalar_type() == at::kLong; }

Tensor beside(const Tensor& x, const std::optional<Tensor>& z) { return z ? at::cat({x, *z}, 1) : x; }

// The first layer on (x, z); whole numbers are the columns of a one-hot encoding that are one.
Tensor first_layer(const Layer& layer, const Tensor& x, const std::optional<Tensor>& z) {
  if (!columns(x)) return linear(layer, beside(x, z));
  Tensor y = layer.weight.index_select(0, x.select(1, 0)).add_(layer.bias);
  for (int64_t k = 1; k < x.size(1); ++k) y.add_(layer.weight.index_select(0, x.select(1, k)));
  return z ? y.addmm_(*z, layer.weight.narrow(0, layer.weight.size(0) - z->size(1), z->size(1))) : y;
}

void first_layer_back(const Layer& layer, const Tensor& x, const std::optional<Tensor>& z, const Tensor& dy) {
  if (!columns(x)) return linear_gradients(layer, beside(x, z), dy);
  sum_out(layer.dbias, dy);
  int64_t width = layer.dweight.size(0) - (z ? z->size(1) : 0);
  if (z) product_out(layer.dweight.narrow(0, width, z->size(1)), z->t(), dy);
  Tensor looked_up = layer.dweight.narrow(0, 0, width).zero_();
  for (int64_t k = 0; k < x.size(1); ++k) looked_up.index_add_(0, x.select(1, k), dy);
}

// (n, hidden) the input of the last layer, from the output of the first layer.
Tensor trunk(const Network& layers, Tensor h, double eps, Tape* tape) {
  for (size_t l = 0;; ++l) {
    const Layer& layer = layers[l];
    if (layer.scale.defined()) {
      auto [y, mean, rstd] = at::native_layer_norm(h, {h.size(1)}, layer.scale, layer.shift, eps);
      if (tape) tape->before.push_back(h), tape->mean.push_back(mean), tape->rstd.push_back(rstd);
      h = y;
    }
    h.relu_();
    if (tape) tape->hidden.push_back(h);
    if (l + 2 == layers.size()) return h;
    h = linear(layers[l + 1], h);
  }
}

// The gradient with respect to the output of the first layer.
Tensor trunk_back(const Network& layers, const Tape& tape, Tensor dh) {
  for (size_t l = layers.size() - 2;; --l) {
    const Layer& layer = layers[l];
    Tensor dy = at::threshold_backward(dh, tape.hidden[l], 0);
    if (layer.scale.defined()) {
      const Tensor& before = tape.before[l];  // only the last hidden layer may lack a norm
      auto [dx, dscale, dshift] = at::native_layer_norm_backward(
          dy, before, {before.size(1)}, tape.mean[l], tape.rstd[l], layer.scale, layer.shift, {true, true, true});
      layer.dscale.copy_(dscale);
      layer.dshift.copy_(dshift);
      dy = dx;
    }
    if (l == 0) return dy;
    dh = linear_back(layer, tape.hidden[l - 1], dy);
  }
}

// The last layer of F, only for the action of each row; rows are sorted by action.
Tensor taken(const Layer& head, const Tensor& h, at::IntArrayRef counts) {
  auto hs = h.split_with_sizes(counts), weights = head.weight.chunk(counts.size(), 1), biases = head.bias.chunk(counts.size());
  vector<Tensor> parts;
  for (size_t a = 0; a < counts.size(); ++a) parts.push_back(at::addmm(biases[a], hs[a], weights[a]));
  return at::cat(parts);
}

// If the action is an input of F, it has its own weights for the observation and shares those for z. These are
// `input_layer_of_actions`, for every action of every row, and `input_layer_of_taken`, for the actions taken.
Tensor first_of_all(const Layer& layer, const Tensor& x, const Tensor& z, int64_t actions) {
  int64_t n = x.size(0), width = (layer.weight.size(0) - z.size(1)) / actions;
  Tensor of_x = layer.weight.narrow(0, 0, actions * width), y;
  Tensor of_z = at::addmm(layer.bias, z, layer.weight.narrow(0, actions * width, z.size(1)));
  if (columns(x)) {
    Tensor starts = at::arange(actions, x.options()).mul_(width);
    for (int64_t k = 0; k < x.size(1); ++k) {
      Tensor rows = of_x.index_select(0, (x.select(1, k).unsqueeze(1) + starts).flatten());
      y = y.defined() ? y.add_(rows) : rows;
    }
    y = y.view({n, actions, -1}).add_(of_z.unsqueeze(1));
  } else {
    y = at::bmm(x.unsqueeze(0).expand({actions, n, width}), of_x.view({actions, width, -1})).transpose(0, 1);
    y = y + of_z.unsqueeze(1);
  }
  return y.reshape({n * actions, -1});
}

Tensor first_taken(const Layer& layer, const Tensor& x, const Tensor& z, const Tensor& taken, at::IntArrayRef counts) {
  int64_t width = (layer.weight.size(0) - z.size(1)) / counts.size();
  if (columns(x)) return first_layer(layer, x + taken.unsqueeze(1) * width, z);
  auto xs = x.split_with_sizes(counts), weights = layer.weight.narrow(0, 0, counts.size() * width).chunk(counts.size());
  vector<Tensor> parts;
  for (size_t a = 0; a < counts.size(); ++a) parts.push_back(xs[a].mm(weights[a]));
  return at::cat(parts).add_(layer.bias).addmm_(z, layer.weight.narrow(0, counts.size() * width, z.size(1)));
}

void first_taken_back(const Layer& layer, const Tensor& x, const Tensor& z, const Tensor& taken, at::IntArrayRef counts,
                      const Tensor& dy) {
  int64_t width = (layer.weight.size(0) - z.size(1)) / counts.size();
  if (columns(x)) return first_layer_back(layer, x + taken.unsqueeze(1) * width, z, dy);
  auto xs = x.split_with_sizes(counts), dys = dy.split_with_sizes(counts);
  auto dweights = layer.dweight.narrow(0, 0, counts.size() * width).chunk(counts.size());
  for (size_t a = 0; a < counts.size(); ++a) at::mm_out(dweights[a], xs[a].t(), dys[a]);
  product_out(layer.dweight.narrow(0, counts.size() * width, z.size(1)), z.t(), dy);
  sum_out(layer.dbias, dy);
}

Tensor taken_back(const Layer& head, const Tensor& h, at::IntArrayRef counts, const Tensor& dvalue) {
  auto hs = h.split_with_sizes(counts), dvalues = dvalue.split_with_sizes(counts);
  auto weights = head.weight.chunk(counts.size(), 1), dweights = head.dweight.chunk(counts.size(), 1);
  auto dbiases = head.dbias.chunk(counts.size());
  vector<Tensor> parts;
  for (size_t a = 0; a < counts.size(); ++a)
    parts.push_back(linear_back({weights[a], Tensor(), dweights[a], dbiases[a]}, hs[a], dvalues[a]));
  return at::cat(parts);
}

// See `model.losses.fb_gradients`: by pairs or by moments, depending on which is cheaper.
bool by_pairs(const Tensor& F, const Tensor& second) {
  return F.size(0) * second.size(0) <= (F.size(0) + second.size(0)) * F.size(1);
}

Tensor residual(const Tensor& F, const Tensor& B, const Tensor& F_next, const Tensor& B_target) {
  return at::addmm(F.mm(B.t()), F_next, B_target.t(), 1, -1);
}

Tensor gradient_F(const Tensor& F, const Tensor& B, const Tensor& here, const Tensor& second, const Tensor& F_next,
                  const Tensor& B_target) {
  double b = F.size(0);
  Tensor B_second = B.narrow(0, B.size(0) - second.size(0), second.size(0)), B_here = B.index_select(0, here);
  Tensor weighted = second.unsqueeze(1) * B_second;
  if (by_pairs(F, second)) return at::addmm(B_here, residual(F, B_second, F_next, B_target), weighted, -1 / b, 1 / b);
  Tensor whole = F.mm(B_second.t().mm(weighted)).sub_(B_here);
  return at::addmm(whole, F_next, B_target.t().mm(weighted), 1 / b, -1 / b);
}

Tensor gradient_B(const Tensor& F, const Tensor& B, const Tensor& here, const Tensor& first, const Tensor& second,
                  const Tensor& F_next, const Tensor& B_target, double orthonormality) {
  int64_t b = F.size(0), m = B.size(0), k = second.size(0);
  Tensor B_first = B.narrow(0, 0, first.size(0)), B_second = B.narrow(0, m - k, k);
  Tensor weighted = second.unsqueeze(1) * B_second, dB, G;
  if (by_pairs(F, second)) {
    dB = (residual(F, B_second, F_next, B_target) * (second / (double)b)).t().mm(F);
    G = at::addmm(B_first, B_first.mm(B_second.t()), weighted, -1, 1);
  } else {
    Tensor FF = F.t().mm(F).div_(b), FF_next = F_next.t().mm(F).div_(b);
    dB = at::addmm(B_second.mm(FF), B_target, FF_next, 1, -1).mul_(second.unsqueeze(1));
    G = at::addmm(B_first, B_first, B_second.t().mm(weighted), -1, 1);
  }
  if (k < m) dB = at::cat({at::zeros({m - k, dB.size(1)}, dB.options()), dB});
  dB.index_add_(0, here, F, -1.0 / b);
  dB.narrow(0, 0, first.size(0)).addcmul_(first.unsqueeze(1), G, orthonormality);
  return dB;
}

// `FlatNetworks.step`: parameters, gradient, mean and square of past gradients; each network counts its own steps.
void adam_step(const vector<Tensor>& adam, Tensor& count, double learning_rate) {
  count.add_(1);
  at::_fused_adam_(adam[0], adam[1], adam[2], adam[3], {}, count, learning_rate, 0.9, 0.999, 0.0, 1e-8, false, false);
}

// Values passed between the threads, one for each minibatch.
class Mailbox {
 public:
  explicit Mailbox(size_t n) : values_(n), there_(n) {}
  bool has(size_t i) const { return there_[i].load(std::memory_order_acquire); }
  const Tensor& operator[](size_t i) const { return values_[i]; }
  void put(size_t i, const Tensor& value) {
    values_[i] = value;
    there_[i].store(true, std::memory_order_release);
  }

 private:
  vector<Tensor> values_;
  vector<std::atomic<bool>> there_;
};

// A persistent thread: a new one for every group would allocate its working memory again.
class Helper {
 public:
  Helper() {
    std::thread([this] {
      c10::InferenceMode guard;
      std::unique_lock lock(mutex_);
      for (;;) {
        changed_.wait(lock, [this] { return job_ != nullptr; });
        (*job_)();
        job_ = nullptr;
        changed_.notify_all();
      }
    }).detach();
  }
  void start(const std::function<void()>& job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return job_ == nullptr; });
    job_ = &job;
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return job_ == nullptr; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;
};

// All updates of a group of minibatches; `count` is the number of steps before. The arguments from `x` to `second` are
// the fields of `batch.Batch`. Returns the terms of the losses of the last update: F, B, F_next, B_target.
vector<Tensor> updates(const vector<Tensor>& F, const vector<Tensor>& F_gradients, const vector<Tensor>& F_target,
                       const vector<Tensor>& F_adam, const vector<Tensor>& B, const vector<Tensor>& B_gradients,
                       const vector<Tensor>& B_target, const vector<Tensor>& B_adam, const Tensor& count, double eps,
                       int64_t deep, bool action_input, bool two_threads, const Tensor& x, const Tensor& taken_actions,
                       const Tensor& counts, const Tensor& next_x, const Tensor& discount, const Tensor& z,
                       const Tensor& shown_z, const Tensor& g, const Tensor& here, const Tensor& first,
                       const Tensor& second, vector<double> learning_rates, double temperature,
                       double orthonormality) {
  c10::InferenceMode guard;
  int64_t n = x.size(0), actions = counts.size(1), k = second.size(1), m = g.size(1);
  Network net_B = network(B, B_gradients), still_B = network(B_target, {});
  vector<Network> net_F = parts(network(F, F_gradients), deep), still_F = parts(network(F_target, {}), deep);
  Tensor count_F = count.clone(), count_B = count.clone();
  bool shared = g.stride(0) == 0;  // categories: all minibatches refer to the same features
  Mailbox Fs(n), Bs(n), F_nexts(n);
  Tensor rows = g.narrow(1, m - k, k);
  rows = shared ? rows[0] : rows.flatten(0, 1);
  Tensor B_targets = linear(still_B.back(), trunk(still_B, first_layer(still_B[0], rows, std::nullopt), eps, nullptr));
  B_targets = shared ? B_targets.unsqueeze(0).expand({n, k, -1}) : B_targets.view({n, k, -1});

  // The targets do not depend on the updates of the group: a thread that has to wait computes the next of them.
  std::atomic<int64_t> begun{0};
  std::atomic<bool> failed{false};
  auto help = [&] {
    int64_t i = begun.load() < n ? begun.fetch_add(1) : n;
    if (i >= n) return std::this_thread::yield();
    Tensor next;
    for (const Network& net : still_F) {
      Tensor h = action_input ? first_of_all(net[0], next_x[i], shown_z[i], actions)
                              : first_layer(net[0], next_x[i], shown_z[i]);
      h = trunk(net, h, eps, nullptr);
      next = next.defined() ? next.addmm_(h, net.back().weight).add_(net.back().bias)
                            : linear(net.back(), h);
    }
    next = next.view({next_x.size(1), actions, -1});
    Tensor policy = at::softmax((next * z[i].unsqueeze(1)).sum(2) / temperature, -1);
    F_nexts.put(i, at::bmm(policy.unsqueeze(1), next).squeeze(1).mul_(discount[i].unsqueeze(1)));
  };
  auto wait = [&](int64_t i) {
    while (!(Fs.has(i) && Bs.has(i) && F_nexts.has(i))) {
      TORCH_CHECK(!failed.load(), "the other thread failed");
      help();
    }
  };
  vector<vector<Tape>> tapes_F(n, vector<Tape>(net_F.size()));
  vector<Tape> tapes_B(n);
  Tensor all_counts = counts.contiguous();
  auto taken_counts = [&](int64_t i) {
    return at::IntArrayRef(all_counts.data_ptr<int64_t>() + i * actions, actions);
  };
  auto forward_F = [&](int64_t i) {
    at::IntArrayRef sizes = taken_counts(i);
    Tensor value;
    for (size_t p = 0; p < net_F.size(); ++p) {
      const Network& net = net_F[p];
      Tensor h = action_input ? first_taken(net[0], x[i], shown_z[i], taken_actions[i], sizes)
                              : first_layer(net[0], x[i], shown_z[i]);
      h = trunk(net, h, eps, &tapes_F[i][p]);
      Tensor part = action_input ? linear(net.back(), h) : taken(net.back(), h, sizes);
      value = value.defined() ? value.add_(part) : part;
    }
    Fs.put(i, value);
  };
  auto backward_F = [&](int64_t i) {
    Tensor dvalue = gradient_F(Fs[i], Bs[i], here[i], second[i], F_nexts[i], B_targets[i]);
    at::IntArrayRef sizes = taken_counts(i);
    for (size_t p = 0; p < net_F.size(); ++p) {
      const Network& net = net_F[p];
      const Tensor& h = tapes_F[i][p].hidden.back();
      Tensor dh = action_input ? linear_back(net.back(), h, dvalue) : taken_back(net.back(), h, sizes, dvalue);
      Tensor dy = trunk_back(net, tapes_F[i][p], dh);
      if (action_input)
        first_taken_back(net[0], x[i], shown_z[i], taken_actions[i], sizes, dy);
      else
        first_layer_back(net[0], x[i], shown_z[i], dy);
    }
    adam_step(F_adam, count_F, learning_rates[i]);
    tapes_F[i].clear();
  };
  auto forward_B = [&](int64_t i) {
    Tensor h = trunk(net_B, first_layer(net_B[0], g[i], std::nullopt), eps, &tapes_B[i]);
    Bs.put(i, linear(net_B.back(), h));
  };
  auto backward_B = [&](int64_t i) {
    Tensor dvalue = gradient_B(Fs[i], Bs[i], here[i], first[i], second[i], F_nexts[i], B_targets[i], orthonormality);
    Tensor dh = linear_back(net_B.back(), tapes_B[i].hidden.back(), dvalue);
    first_layer_back(net_B[0], g[i], std::nullopt, trunk_back(net_B, tapes_B[i], dh));
    adam_step(B_adam, count_B, learning_rates[i]);
    tapes_B[i] = Tape();
  };

  if (two_threads) {
    std::exception_ptr error;
    auto side = [&](auto forward, auto backward) {
      try {
        for (int64_t i = 0; i < n; ++i) forward(i), wait(i), backward(i);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    };
    int threads = at::get_num_threads();
    static Helper* helper = nullptr;  // never deleted: its thread runs until the process ends
    static pid_t owner = 0;
    if (owner != getpid()) helper = new Helper(), owner = getpid();  // a forked process has only one thread
    std::function<void()> job = [&] {
      if (at::get_num_threads() != threads) at::set_num_threads(threads);  // OpenMP remembers it by thread
      side(forward_B, backward_B);
    };
    helper->start(job);
    side(forward_F, backward_F);
    helper->finish();
    if (error) std::rethrow_exception(error);
  } else {
    for (int64_t i = 0; i < n; ++i) forward_F(i), forward_B(i), wait(i), backward_F(i), backward_B(i);
  }
  return {Fs[n - 1], Bs[n - 1], F_nexts[n - 1], B_targets[n - 1]};
}

}  // namespace

TORCH_LIBRARY(anyreward, library) { library.def("updates", &updates); }
