"""The gradient steps of the autoencoders, on a CPU or a GPU. This is the only module that imports PyTorch.

It is imported when a fit begins; a fitted autoencoder needs no PyTorch for its scores.
"""

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.nn import functional

from oneclass.models.autoencoders import draws

_torch_lock = threading.RLock()


@dataclass(frozen=True)
class Batch:
    """The histories of some users as tensors on the device: the data that a loss is computed from.

    Attributes:
        users: int64 (batch,), rows of the training matrix.
        items, rows, values: (edges,), for each edge its item, its row in the batch, and its input value: x / |x| after
            dropout.
        starts: int64 (batch,), where each user's edges begin.
        counts: (batch,), the number of edges of each user.
        noise: (batch, width), standard normals; width is 0 if the model needs none.
        update: the number of gradient steps before this one, those of an earlier fit included.
        item_count: the number of items.
    """

    users: torch.Tensor
    items: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    noise: torch.Tensor
    update: int
    item_count: int

    def times(self, table: torch.Tensor) -> torch.Tensor:
        """The inputs times `table` (items, width): for each user a sum over the edges, (batch, width)."""
        return functional.embedding_bag(self.items, table, self.starts, mode="sum", per_sample_weights=self.values)

    def sums(self, logits: torch.Tensor) -> torch.Tensor:
        """Sums of `logits` (batch, items) over the items of each user's history, (batch,)."""
        return logits.new_zeros(len(self.users)).index_add(0, self.rows, logits[self.rows, self.items])

    def log_likelihood(self, logits: torch.Tensor) -> torch.Tensor:
        """sum_i x_ui log softmax_i(logits_u) of each user, (batch,): the multinomial of Liang et al. 2018, eq. 2."""
        return self.sums(logits) - self.counts * logits.logsumexp(dim=1)

    def logistic_loss(self, logits: torch.Tensor, negative_weight: float) -> torch.Tensor:
        """softplus(-y) over each user's liked items and `negative_weight` softplus(y) over the others, (batch,)."""
        costs = functional.softplus(logits)  # softplus(-y) = softplus(y) - y
        return negative_weight * costs.sum(dim=1) + self.sums((1 - negative_weight) * costs - logits)


class Training:
    """The weights, their Adam moments, and the epochs of training.

    Args:
        initial: the weights before the first step, by name.
        loss: function from the weights and a batch to the loss, a mean over the users of the batch.
        decay: penalty on the squares of all weights but biases, which are the weights of one dimension.
        noise_width: the number of normals that are drawn for each user in an epoch.
        earlier: the number of gradient steps that led to `initial`; the moments begin anew.
    """

    def __init__(
        self,
        initial: dict[str, np.ndarray],
        loss: Callable[[dict[str, torch.Tensor], Batch], torch.Tensor],
        *,
        device: str,
        learning_rate: float,
        decay: float,
        noise_width: int,
        earlier: int = 0,
    ) -> None:
        self.device = _resolve_device(device)
        self.tensors = {
            name: torch.tensor(array, device=self.device).requires_grad_() for name, array in initial.items()
        }
        tables = [tensor for tensor in self.tensors.values() if tensor.dim() > 1]
        biases = [tensor for tensor in self.tensors.values() if tensor.dim() == 1]
        groups = [{"params": tables, "weight_decay": 2 * decay}, {"params": biases}]  # d/dw decay w^2 = 2 decay w
        self.adam = torch.optim.Adam(groups, lr=learning_rate, fused=True)
        self.loss, self.noise_width = loss, noise_width
        self.earlier, self.updates = earlier, 0

    def epoch(
        self, interactions: csr_matrix, users: np.ndarray, size: int, dropout: float, seed: int, number: int
    ) -> float:
        """One step for every `size` users, in the random order of the epoch; returns the mean loss of a user.

        Raises:
            ValueError: the loss is not finite.
            MemoryError: a step does not fit into the memory of the device.
        """
        total = 0.0
        order = draws.shuffle_users(users, seed, number)
        for start in range(0, len(order), size):
            batch = self.batch(interactions, order[start : start + size], dropout, seed, number)
            total += self._step(batch) * len(batch.users)
        if not np.isfinite(total):
            raise ValueError(f"the loss is {total} in epoch {number}; lower learning_rate")
        return total / len(order)

    def _step(self, batch: Batch) -> float:
        """One gradient step; returns the mean loss before it."""
        try:
            self.adam.zero_grad()
            loss = self.loss(self.tensors, batch)
            loss.backward()
            self.adam.step()
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"a step over {len(batch.users)} users does not fit into the memory of {self.device}: lower "
                "batch_users or hidden, or set device to cpu"
            ) from error
        self.updates += 1
        return loss.item()

    def batch(self, interactions: csr_matrix, users: np.ndarray, dropout: float, seed: int, epoch: int) -> Batch:
        """The batch of some rows of the training matrix, with the draws of the epoch."""
        rows = interactions[users]
        counts = np.diff(rows.indptr)
        kind = next(iter(self.tensors.values())).dtype

        def whole(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array.astype(np.int64)).to(self.device)

        def real(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(self.device, kind)

        return Batch(
            whole(users),
            whole(rows.indices),
            whole(np.repeat(np.arange(len(users)), counts)),
            real(draws.draw_inputs(rows, users, seed, epoch, dropout)),
            whole(rows.indptr[:-1]),
            real(counts),
            real(draws.draw_noise(users, self.noise_width, seed, epoch)),
            self.earlier + self.updates,
            rows.shape[1],
        )

    def weights(self) -> dict[str, np.ndarray]:
        """The weights by name; on a CPU these are views, which the next step changes."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Weights and moments: all that the next epoch needs, except the draws."""
        arrays = {"updates": np.array(self.updates)}
        for name, tensor in self.tensors.items():
            moments = self.adam.state[tensor]
            arrays |= {
                f"weight {name}": tensor,
                f"first {name}": moments["exp_avg"],
                f"second {name}": moments["exp_avg_sq"],
            }
        return {
            name: array.detach().cpu().numpy() if torch.is_tensor(array) else array for name, array in arrays.items()
        }

    def restore_state(self, state: dict[str, np.ndarray]) -> None:
        """Take back what `state` gave."""
        self.updates = int(state["updates"])
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(torch.from_numpy(state[f"weight {name}"]))
                self.adam.state[tensor] = {
                    "step": torch.tensor(float(self.updates), device=self.device),
                    "exp_avg": torch.from_numpy(state[f"first {name}"]).to(self.device),
                    "exp_avg_sq": torch.from_numpy(state[f"second {name}"]).to(self.device),
                }


@contextlib.contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Run the block with PyTorch on `count` CPU threads; one block at a time, since the process has one such number."""
    with _torch_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _resolve_device(wanted: str) -> torch.device:
    """The device of the setting.

    Raises:
        ValueError: `cuda` where PyTorch sees none.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device = cuda: PyTorch {torch.__version__} sees no CUDA device here; set device to cpu or "
            "auto, or install a build of PyTorch with CUDA and a driver that fits it"
        )
    return torch.device(wanted)
