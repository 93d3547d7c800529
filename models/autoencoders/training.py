"""The gradient steps of the autoencoders, on a CUDA device if PyTorch sees one. Only this module imports PyTorch.

It is imported when a fit begins; a fitted autoencoder needs no PyTorch for its scores.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import nn
from torch.nn import functional

logger = logging.getLogger(__name__)
_torch_lock = threading.RLock()


@dataclass(frozen=True)
class Batch:
    """The histories of some users as tensors on the device: the data that a loss is computed from.

    Attributes:
        users, starts, counts: (batch,), for each user the row of the training matrix, where the edges begin, and how
            many there are.
        items, rows, values: (edges,), for each edge its item, its row in the batch, and x / |x| after dropout.
        noise: (batch, width), standard normals.
        update: the number of gradient steps before this one, those of an earlier fit included.
    """

    users: torch.Tensor
    items: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    noise: torch.Tensor
    update: int

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


Loss = Callable[[Any, Batch], torch.Tensor]  # of weights by name, a mean over the users of the batch


class Training:
    """The weights, Adam, and the epochs of training.

    The draws of an epoch, which are the order of the users, the dropout and the noise, are those of a generator on the
    CPU that begins anew with the epoch, the same on a GPU. On CUDA the last bits of a fit may differ from run to run.

    Args:
        initial: the weights before the first step, by name.
        chosen: `AutoencoderSettings`.
        earlier: the number of gradient steps that led to `initial`; the moments begin anew.
    """

    def __init__(self, initial: Mapping[str, np.ndarray], loss: Loss, chosen: Any, seed: int, earlier: int = 0) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tensors = nn.ParameterDict({name: torch.tensor(array) for name, array in initial.items()}).to(self.device)
        tables, biases = ([tensor for tensor in self.tensors.values() if (tensor.dim() > 1) == more] for more in (1, 0))
        groups = [{"params": tables, "weight_decay": 2 * chosen.weight_decay}, {"params": biases}]  # d/dw w^2 = 2 w
        self.adam = torch.optim.Adam(groups, lr=chosen.learning_rate, fused=True)
        self.loss, self.chosen, self.seed = loss, chosen, seed
        self.updates = earlier

    def epoch(self, interactions: csr_matrix, users: np.ndarray, number: int) -> float:
        """Take one step for every `batch_users` users, in a random order; return the mean loss of a user.

        Raises:
            ValueError: the loss is not finite.
            MemoryError: a step does not fit into the memory of the device.
        """
        generator = seed_generator(self.seed, number)
        order, total = users[torch.randperm(len(users), generator=generator).numpy()], 0.0
        for start in range(0, len(order), self.chosen.batch_users):
            batch = self.draw_batch(interactions, order[start : start + self.chosen.batch_users], generator)
            total += self._step(batch) * len(batch.users)
        if not np.isfinite(total):
            raise ValueError(f"the loss is {total} in epoch {number}; lower learning_rate")
        return total / len(order)

    def _step(self, batch: Batch) -> float:
        """Take one gradient step; return the mean loss before it."""
        try:
            self.adam.zero_grad()
            loss = self.loss(self.tensors, batch)
            loss.backward()
            self.adam.step()
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"a step over {len(batch.users)} users does not fit into the memory of {self.device}: lower "
                "batch_users or hidden"
            ) from error
        self.updates += 1
        return loss.item()

    def draw_batch(self, interactions: csr_matrix, users: np.ndarray, generator: torch.Generator) -> Batch:
        """Return the batch of some rows of the training matrix, with dropout and noise drawn."""
        rows, dropout = interactions[users], self.chosen.dropout
        counts, kind = np.diff(rows.indptr), next(iter(self.tensors.values())).dtype
        places = np.repeat(np.arange(len(users)), counts)
        is_kept = torch.rand(rows.nnz, generator=generator, dtype=torch.float64) >= dropout
        values = is_kept / torch.from_numpy(np.sqrt(counts)[places] * (1 - dropout))
        noise = torch.randn((len(users), getattr(self.chosen, "latent", 0)), generator=generator)
        row_users, items, places, starts = (
            torch.from_numpy(array.astype(np.int64)).to(self.device)
            for array in (users, rows.indices, places, rows.indptr[:-1])
        )
        values, counts, noise = (tensor.to(self.device, kind) for tensor in (values, torch.from_numpy(counts), noise))
        return Batch(row_users, items, places, values, starts, counts, noise, self.updates)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights by name; on a CPU these are views, which the next step changes."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors.items()}


def seed_generator(seed: int, epoch: int) -> torch.Generator:
    """Return the generator of an epoch's draws."""
    (mixed,) = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed >> np.uint64(1)))


@contextlib.contextmanager
def single_torch_thread() -> Generator[None]:
    """Run the block with PyTorch on one CPU thread, since the last bits of a fit depend on their number.

    One block runs at a time: the process has one such number.
    """
    with _torch_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
