"""The Llama forward pass in numpy, one token at a time for a batch of streams, and sampling.

Weights and hyperparameters come from a GGUF alone; nothing is shared with the training code but
the tokenizer.
"""

import numpy as np

import gguf_reader
from tokenizer import Tokenizer


class NumpyLlama:
    def __init__(self, path):
        meta, tensors = gguf_reader.read(path)
        if meta["general.architecture"] != "llama":
            raise ValueError(f"{path}: architecture {meta['general.architecture']}, not llama")
        self.weights = {name: array.astype(np.float32) for name, array in tensors.items()}
        self.output = self.weights.get("output.weight", self.weights["token_embd.weight"])
        self.n_layer = meta["llama.block_count"]
        self.n_head = meta["llama.attention.head_count"]
        self.n_kv_head = meta["llama.attention.head_count_kv"]
        self.n_ctx = meta["llama.context_length"]
        self.eps = meta["llama.attention.layer_norm_rms_epsilon"]
        self.head_dim = meta["llama.embedding_length"] // self.n_head
        self.rope_base = meta.get("llama.rope.freq_base", 10000.0)
        self.bos = meta["tokenizer.ggml.bos_token_id"]
        self.eos = meta["tokenizer.ggml.eos_token_id"]
        self.tokenizer = Tokenizer(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"],
                                   meta["tokenizer.ggml.token_type"])

    def new_cache(self, n_streams):
        """Keys and values, each [layer, stream, kv head, position, head_dim]."""
        shape = (self.n_layer, n_streams, self.n_kv_head, self.n_ctx, self.head_dim)
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def _norm(self, x, name):
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * scale * self.weights[name + ".weight"]

    def _linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def _rotate(self, x, position):
        """x: [stream, head, head_dim]; pairs (2i, 2i+1) turn by position * base^(-2i/d)."""
        exponents = np.arange(0, self.head_dim, 2) / self.head_dim
        angles = position * self.rope_base ** -exponents
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        turned = np.empty_like(x)
        turned[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        turned[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return turned

    def _attention(self, x, layer, position, cache):
        n, prefix = len(x), f"blk.{layer}.attn_"
        keys, values = cache[0][layer], cache[1][layer]
        group = self.n_head // self.n_kv_head
        q = self._rotate(self._linear(x, prefix + "q").reshape(n, self.n_head, -1), position)
        k = self._linear(x, prefix + "k").reshape(n, self.n_kv_head, -1)
        keys[:, :, position] = self._rotate(k, position)
        values[:, :, position] = self._linear(x, prefix + "v").reshape(n, self.n_kv_head, -1)
        q = q.reshape(n, self.n_kv_head, group, self.head_dim)
        scores = q @ keys[:, :, :position + 1].swapaxes(-1, -2) / np.sqrt(self.head_dim)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = scores @ values[:, :, :position + 1]
        return self._linear(mixed.reshape(n, -1).astype(np.float32), prefix + "output")

    def step(self, tokens, position, cache):
        """Logits [stream, vocab] after `tokens`, one a stream, all at `position`."""
        x = self.weights["token_embd.weight"][tokens]
        for layer in range(self.n_layer):
            block = f"blk.{layer}."
            x = x + self._attention(self._norm(x, block + "attn_norm"), layer, position, cache)
            h = self._norm(x, block + "ffn_norm")
            gate = self._linear(h, block + "ffn_gate")
            x = x + self._linear(gate / (1 + np.exp(-gate)) * self._linear(h, block + "ffn_up"),
                                 block + "ffn_down")
        return self._norm(x, "output_norm") @ self.output.T


def pick(logits, rng, temperature, top_p):
    """One token of each row: softmax at `temperature`, cut to the smallest set of the likeliest
    tokens that holds `top_p` of it. Temperature 0 takes the likeliest."""
    if temperature == 0:
        return logits.argmax(-1)
    scaled = logits.astype(np.float64) / temperature
    probabilities = np.exp(scaled - scaled.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, -1)
    before = ranked.cumsum(-1) - ranked
    ranked[before >= top_p] = 0
    reached = ranked.cumsum(-1)
    draws = rng.random((len(logits), 1)) * reached[:, -1:]
    chosen = (reached <= draws).sum(-1)
    return order[np.arange(len(logits)), chosen]


def sample(model, count, seed, temperature, top_p):
    """`count` texts from BOS to EOS, or to the context's end."""
    rng = np.random.default_rng(seed)
    cache = model.new_cache(count)
    tokens = np.full(count, model.bos)
    streams, running = [[] for _ in range(count)], np.ones(count, bool)
    for position in range(model.n_ctx):
        tokens = pick(model.step(tokens, position, cache), rng, temperature, top_p)
        running &= tokens != model.eos
        if not running.any():
            break
        for i in np.flatnonzero(running):
            streams[i].append(int(tokens[i]))
    return [model.tokenizer.decode(stream) for stream in streams]
