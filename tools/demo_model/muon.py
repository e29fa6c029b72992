"""The Muon optimizer (Keller Jordan, 2024): momentum whose matrix update is made orthogonal.

For the blocks' matrices only; embeddings, output and norms stay with AdamW. The constants of the
Newton-Schulz iteration are the author's.
"""

import torch


def orthogonalised(matrix, iterations=5):
    """`matrix` with all its singular values brought near 1."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(iterations):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                mean = state["mean"].lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalised(parameter.grad.lerp(mean, group["momentum"]))
                rows, columns = parameter.shape
                parameter.add_(update, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)
