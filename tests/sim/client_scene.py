"""A broker and a client on simulated machines, and what goes wrong between them."""

from collections.abc import Mapping
from random import Random

from mainstem.broker.config import BrokerConfig
from mainstem.sim.broker_process import BrokerProcess
from mainstem.sim.disk import SimDisk
from mainstem.sim.loop import Scheduler, SimLoop, make_loop
from mainstem.sim.network import Network

BOOTSTRAP = "broker:9092"


class ClientScene:
    """One broker that runs, and a loop for the client's code, which then is the product's own."""

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.rng = Random(f"{seed}:scene")
        self.scheduler = Scheduler(Random(f"{seed}:sched"))
        self.network = Network(self.scheduler, Random(f"{seed}:net"), lambda *event: None, lambda what: None)
        self.disk = SimDisk(Random(f"{seed}:disk"), lambda: self.process.clock.wall_ms())
        self.disk.make_directories("/")
        config = BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": "/data",
                **(settings or {}),
            }
        )
        self.process = BrokerProcess(
            str(seed), self.scheduler, self.network, self.disk, config, lambda *event: None, lambda what: None
        )
        self.process.format()
        self.process.start()
        self.loop: SimLoop = make_loop(self.scheduler, Random(f"{seed}:client"), "client", self.network)

    def do_harm(self, *, zombies: bool = False) -> None:
        """One thing goes wrong: the broker is killed for a while, a connection is lost, or the network is bad."""
        rng = self.rng
        match rng.randrange(5):
            case 0 if self.process.is_up:
                self.process.kill()
                self.scheduler.later(rng.uniform(0.05, 1.0), self.start_broker)
            case 1 if self.network.connections:
                self.network.reset(rng.choice(sorted(self.network.connections)), "harm")
            case 2:
                self.network.cut("client", "broker", rng.uniform(0.01, 2.0))
            case 3:
                self.network.cut("broker", "client", rng.uniform(0.01, 2.0))
            case 4:
                self.network.faults.slow_share = rng.choice((0.0, 0.3))
                self.network.faults.lose_answer_share = rng.choice((0.0, 0.1))
                if zombies:
                    self.network.faults.zombie_share = rng.choice((0.0, 0.1))

    def start_broker(self) -> None:
        if not self.process.is_up:
            self.process.start()
