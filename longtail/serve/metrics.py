"""Counters and gauges of the server in the form that Prometheus reads."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
METHODS = ("GET", "POST", "DELETE")  # others are counted together, as anyone may send any


class Metrics:
    """Counters of one server; two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        ours = self.registry
        self._requests = Counter("longtail_requests", "Requests answered.", ["method", "path", "status"], registry=ours)
        self._seconds = Histogram(
            "longtail_request_seconds", "From the first byte to the answer.", ["path"], buckets=SECONDS, registry=ours
        )
        self._texts = Counter("longtail_texts", "Texts predicted.", ["model"], registry=ours)
        self._batch = Histogram("longtail_batch_texts", "Texts answered by one call of the model.", ["model"], buckets=TEXTS, registry=ours)
        self._predict = Histogram("longtail_predict_seconds", "One call of the model.", ["model"], buckets=SECONDS, registry=ours)
        self._reloads = Counter("longtail_reloads", "Newer versions of a model taken in.", ["model", "result"], registry=ours)
        self._waiting = Gauge("longtail_waiting_texts", "Texts that wait for the model.", ["model"], registry=ours)
        self._labels = Gauge("longtail_labels", "Labels that a model knows.", ["model"], registry=ours)

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        self._requests.labels(method if method in METHODS else "other", path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, model: str, n_texts: int, seconds: float) -> None:
        self._texts.labels(model).inc(n_texts)
        self._batch.labels(model).observe(n_texts)
        self._predict.labels(model).observe(seconds)

    def reload(self, model: str, result: str) -> None:
        self._reloads.labels(model, result).inc()

    def state(self, model: str, waiting: int, n_labels: int) -> None:
        self._waiting.labels(model).set(waiting)
        self._labels.labels(model).set(n_labels)

    def text(self) -> bytes:
        return generate_latest(self.registry)
