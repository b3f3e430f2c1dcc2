"""`calibrant serve --check`: would this start, as far as can be said without starting?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import ConfigError, DataError
from calibrant.remote.storage import reached
from calibrant.serve.config import ServeConfig
from calibrant.serve.engine.session import Session
from calibrant.serve.models.acceptance import Contract, check_golden_rows, misfits
from calibrant.serve.models.folder import models_in
from calibrant.serve.models.remote_folder import RemoteFolder
from calibrant.serve.models.repository import NEWEST
from calibrant.serve.monitor.baseline import read_baseline
from calibrant.serve.monitor.features import ServedFeatures
from calibrant.serve.tls import validity


def checked(config: ServeConfig) -> Iterator[str]:
    """Lines that say what is there; raises what would end the server or leave a model out."""
    tokens = config.tokens()
    if tokens:
        yield f"{len(tokens)} token(s): {', '.join(sorted({right for t in tokens for right in t.rights}))}"
    if config.tls_cert is not None and (context := config.tls()) is not None:
        callers = " for callers with one" if config.tls_client_ca else ""
        yield f"certificate {config.tls_cert}{callers} {validity(context, config.tls_cert).said}"
    if config.log_to is not None:
        yield f"{config.log_to}: {'reached' if reached(config.log_to) else 'reached, and nothing lies there yet'}"
    files = [(spec.name, spec.version, spec.path) for spec in config.models]
    for address in config.remote:
        with tempfile.TemporaryDirectory() as copies:
            remote = RemoteFolder(address, Path(copies))
            remote.fetch()
            found = models_in(remote.folder)
            yield f"{address}: {len(found)} model(s): {', '.join(f'{n}@{v}' for n, v in sorted(found))}"
    for folder in config.folders:
        files += [(name, version, path) for (name, version), path in models_in(folder).items()]
    seen: dict[tuple[str, str], Path] = {}
    contracts: dict[tuple[str, str], Contract] = {}
    if config.feedback_log is not None and config.feedback_log.exists() and not config.feedback_log.is_dir():
        raise DataError("a feedback log is a folder, and this is none", where=config.feedback_log)
    for name, version, path in files:
        session = Session(path, providers=config.providers, threads=config.threads)
        check_golden_rows(session)
        key = (name or session.own_name, version)
        if key in seen:
            raise ConfigError(f'there are two models "{key[0]}" of version {version}', where=path)
        seen[key] = path
        card = session.card
        if config.baseline is not None and card is not None:
            read_baseline(config.baseline, card)
        if config.watch.features and card is not None:
            yield f"{key[0]}: features: {ServedFeatures.of(session, session.sha256(), config.baseline).said}"
        classes = "not ours, tensors only" if card is None else f"{len(card.classes)} classes"
        golden = "golden rows hold" if card is not None and card.golden is not None else "no golden rows"
        changed = [] if card is None else OnnxFile.open(path).changed(card)
        since = f", but its {' and '.join(changed)} CHANGED since the export" if changed else ""
        yield f"{key[0]} version {version}: {path}, {classes}, {session.providers[0]}, {golden}{since}"
        if any(path.is_relative_to(folder) for folder in config.folders):
            contracts[key] = Contract.of(session)
    for key, error in [] if config.accept_changes else misfits(contracts):
        yield f"{key[0]} version {key[1]} would NOT be served: {error}"
    for option, shares in (("--canary", config.canaries), ("--shadow", config.shadows)):
        for share in shares:
            if share.version == NEWEST and option == "--canary" and share.name in {name for name, _ in seen}:
                continue
            if (share.name, share.version) not in seen:
                raise ConfigError(f'no model "{share.name}@{share.version}"', where=option)
