"""Step 3: next-token pairs

One sentence holds as many lessons as it has inputs: each prefix, and the token it must
predict. Layers expect a batch of sentences, so the ids get a batch axis in front.

What is said of it, and checked: steps/claims/step3.py
"""

from steps.pytorch import torch


def step(input_ids):
    token_ids_tensor = torch.tensor(input_ids)  # (T)
    batch_ids = token_ids_tensor.unsqueeze(0)  # (B, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
