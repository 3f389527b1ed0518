"""Registration of the four PyBullet environments; the simulator itself is imported when one is made."""

import gymnasium

HORIZON = 1000

# Environment id: (where its class lives, the return its original registration calls solved).
ENVIRONMENTS: dict[str, tuple[str, float | None]] = {
    "pac4sac/CartpoleSwingup-v0": ("pac4sac.tasks.robots:CartpoleSwingup", 800.0),
    "pac4sac/HalfCheetah-v0": ("pac4sac.tasks.robots:HalfCheetah", 3000.0),
    "pac4sac/Ant-v0": ("pac4sac.tasks.robots:Ant", 2500.0),
    "pac4sac/Humanoid-v0": ("pac4sac.tasks.robots:Humanoid", None),
}


def register_environments() -> None:
    for env_id, (entry_point, threshold) in ENVIRONMENTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point, reward_threshold=threshold, max_episode_steps=HORIZON)
