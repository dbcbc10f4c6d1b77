"""Networks for actions of a box: F(s, a, z), where the action is an input, and the actor pi_z(s)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyreward.model.networks import ConvEncoder, dense

Seen = tuple[Tensor, Tensor]
"""What a network computes of (s, z), whatever the action: see `Embedded.seen`."""


def embedding(inputs: int, hidden: int) -> nn.Sequential:
    """The first layers on a part of the inputs: bounded, so that no input dominates, and half as wide at the end."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden // 2),
        nn.ReLU(inplace=True),
    )


class Embedded(nn.Module):
    """A network of two embeddings, side by side: of an encoded observation with z, and of it with ``beside``.

    The observation (n, width) may be given by its one-hot columns (n, k), or as images (n, bytes) of shape ``image``.
    """

    def __init__(
        self,
        width: int,
        dim: int,
        beside: int,
        outputs: int,
        hidden: int,
        layers: int,
        image: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.conv = ConvEncoder(image) if image else None
        self.width = self.conv.width if self.conv else width
        self.of_z, self.of_other = embedding(self.width + dim, hidden), embedding(self.width + beside, hidden)
        inner: list[nn.Module] = []
        for layer in range(max(layers - 2, 1)):
            inner += [nn.Linear(2 * (hidden // 2) if layer == 0 else hidden, hidden), nn.ReLU(inplace=True)]
        self.head = nn.Sequential(*inner, nn.Linear(hidden, outputs))

    def forward(self, x: Tensor, z: Tensor, beside: Tensor | None = None) -> Tensor:
        """(n, outputs) for z (n, d) as returned by `preprocess_z`, and ``beside`` (n, width), if there is any."""
        return self.at(self.seen(x, z), beside)

    def seen(self, x: Tensor, z: Tensor) -> Seen:
        """What does not depend on ``beside``: the encoded observation (n, width), and the embedding of it with z."""
        x = dense(x, self.width) if self.conv is None else self.conv(x)
        return x, self.of_z(torch.cat([x, z], 1))

    def at(self, seen: Seen, beside: Tensor | None) -> Tensor:
        """(n, outputs) for what was `seen`, and ``beside``."""
        x, of_z = seen
        other = x if beside is None else torch.cat([x, beside], 1)
        y: Tensor = self.head(torch.cat([of_z, self.of_other(other)], 1))
        return y


class ForwardBox(nn.Module):
    """F for actions of a box: one network, or two that are learned side by side."""

    def __init__(
        self,
        width: int,
        actions: int,
        dim: int,
        hidden: int,
        layers: int,
        members: int = 1,
        image: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.members = nn.ModuleList(Embedded(width, dim, actions, dim, hidden, layers, image) for _ in range(members))

    def forward(self, x: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        """(E, n, d) F(s, a, z) of each network, for actions (n, width) and z (n, d) as returned by `preprocess_z`."""
        return self.at(self.seen(x, z), actions)

    def seen(self, x: Tensor, z: Tensor) -> list[Seen]:
        """What each network computes of (s, z): the same for all actions."""
        return [member.seen(x, z) for member in self.each()]

    def at(self, seen: list[Seen], actions: Tensor) -> Tensor:
        """(E, n, d) F(s, a, z) for what was `seen`; each row of it may have several actions (K n, width) in turn."""
        times = len(actions) // max(len(seen[0][0]), 1)
        if times > 1:
            seen = [(x.repeat_interleave(times, 0), of_z.repeat_interleave(times, 0)) for x, of_z in seen]
        return torch.stack([member.at(own, actions) for member, own in zip(self.each(), seen, strict=True)])

    def each(self) -> list[Embedded]:
        """The networks."""
        return [member for member in self.members if isinstance(member, Embedded)]


class Actor(nn.Module):
    """pi_z(s): maps an encoded observation (n, width) and z (n, d) to an action of the box, (n, actions)."""

    def __init__(
        self,
        width: int,
        actions: int,
        dim: int,
        hidden: int,
        layers: int,
        image: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.net = Embedded(width, dim, 0, actions, hidden, layers, image)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, actions) from -1 to 1, for z as returned by `preprocess_z`."""
        return torch.tanh(self.net(x, z))


def combined(F: Tensor, z: Tensor, least: bool) -> Tensor:
    """(n, d) one F of those of E networks (E, n, d): their mean, or in each row that with the least F . z."""
    if len(F) == 1:
        return F[0]
    if not least:
        return F.mean(0)
    which = (F.detach() * z).sum(2).argmin(0)  # (n,)
    return F.gather(0, which[None, :, None].expand(1, *F.shape[1:]))[0]


def smoothed(actions: Tensor, noise: float, most: float, random: torch.Generator) -> Tensor:
    """Actions (n, width) with normal noise, which is clipped at ``most``; the result is clipped to the box."""
    shift = noise * torch.randn(actions.shape, generator=random, device=random.device).to(actions)
    return (actions + shift.clamp(-most, most)).clamp(-1.0, 1.0)
