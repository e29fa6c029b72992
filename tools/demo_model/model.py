"""A plain Llama in torch: RMSNorm, rotary positions on adjacent pairs, grouped-query attention,
SwiGLU, untied output. Parameter names are GGUF's tensor names."""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Config:
    n_vocab: int = 1024
    n_embd: int = 128
    n_layer: int = 4
    n_head: int = 4
    n_kv_head: int = 2
    n_ff: int = 384
    n_ctx: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self):
        return self.n_embd // self.n_head


def rotation(config, n_tokens):
    """cos and sin, each [n_tokens, head_dim / 2]: pair i of a head turns by p * base^(-2i/d)."""
    exponents = torch.arange(0, config.head_dim, 2) / config.head_dim
    angles = torch.arange(n_tokens)[:, None] * config.rope_base ** -exponents[None, :]
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x: [batch, head, token, head_dim]; the pair is elements 2i and 2i+1."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2)


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        width, kv_width = config.n_embd, config.n_kv_head * config.head_dim
        self.attn_norm = RmsNorm(width, config.norm_eps)
        self.attn_q = nn.Linear(width, width, bias=False)
        self.attn_k = nn.Linear(width, kv_width, bias=False)
        self.attn_v = nn.Linear(width, kv_width, bias=False)
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_norm = RmsNorm(width, config.norm_eps)
        self.ffn_gate = nn.Linear(width, config.n_ff, bias=False)
        self.ffn_up = nn.Linear(width, config.n_ff, bias=False)
        self.ffn_down = nn.Linear(config.n_ff, width, bias=False)

    def attention(self, x, cos, sin, mask):
        batch, n_tokens, width = x.shape
        head_dim, group = self.config.head_dim, self.config.n_head // self.config.n_kv_head

        def heads(projected):
            return projected.view(batch, n_tokens, -1, head_dim).transpose(1, 2)

        q = rotate(heads(self.attn_q(x)), cos, sin) / math.sqrt(head_dim)
        k = rotate(heads(self.attn_k(x)), cos, sin).repeat_interleave(group, dim=1)
        v = heads(self.attn_v(x)).repeat_interleave(group, dim=1)
        scores = q @ k.transpose(-2, -1) + mask
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, n_tokens, width)
        return self.attn_output(mixed)

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.attn_norm(x), cos, sin, mask)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.n_vocab, config.n_embd)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.output_norm = RmsNorm(config.n_embd, config.norm_eps)
        self.output = nn.Linear(config.n_embd, config.n_vocab, bias=False)
        self.initialise()

    def initialise(self):
        """Copying is there from the start and only where to look must be learned: what a head
        reads it writes back as it was (attn_output is attn_v transposed), and the output matrix
        is the embedding. From a plain random start no head had learned to copy the hero's name
        after 1,600 steps."""
        config = self.config
        nn.init.normal_(self.token_embd.weight)
        self.output.weight.data = 0.02 * self.token_embd.weight.data
        group = config.n_head // config.n_kv_head
        for block in self.blk:
            for linear in (block.attn_q, block.attn_k, block.ffn_gate, block.ffn_up):
                nn.init.normal_(linear.weight, std=config.n_embd ** -0.5)
            nn.init.normal_(block.ffn_down.weight, std=(2 * config.n_layer * config.n_ff) ** -0.5)
            nn.init.orthogonal_(block.attn_v.weight)
            heads = block.attn_v.weight.data.view(config.n_kv_head, config.head_dim, -1)
            heads = heads.repeat_interleave(group, dim=0).flatten(0, 1)
            block.attn_output.weight.data = heads.T.clone() / group

    def forward(self, tokens):
        """tokens: [batch, token] -> logits [batch, token, vocab]."""
        n_tokens = tokens.shape[1]
        cos, sin = rotation(self.config, n_tokens)
        mask = torch.full((n_tokens, n_tokens), float("-inf")).triu(1)
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, cos, sin, mask)
        return self.output(self.output_norm(x))
