"""``calmtune push``: a run to the Hugging Face Hub: the model, its calibration and its card, and nothing else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import command, note, say, warn
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import new_parser
from calmtune.cli.push_files import Upload, files_to_publish

if TYPE_CHECKING:
    from calmtune.report import Summary


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "push",
        run,
        "publish a run on the Hugging Face Hub",
        "Upload the model, its calibration and its card in one commit; --dry_run lists the files instead.\n"
        "Predictions, reports, splits, checkpoints and settings stay here, and a file that names a path of this\n"
        "machine is refused. A new repository is as visible as your account makes new ones (usually public), unless\n"
        "--hub_private_repo. The card is written anew, with code that loads the run from the Hub.\n"
        "Log in first: hf auth login, or set HF_TOKEN.",
        "  calmtune push runs/first --hub_model_id me/my-model --dry_run\n"
        "  calmtune push runs/first --hub_model_id me/my-model --hub_private_repo",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="output_dir of calmtune train")
    parser.add_argument(
        "--hub_model_id", "--hub-model-id", metavar="NAME", help="owner/name; default: the run's own, or its folder's"
    )
    parser.add_argument(
        "--hub_private_repo", "--hub-private-repo", action="store_true", help="make the new repository private"
    )
    parser.add_argument(
        "--base_model", "--base-model", metavar="NAME", help="the base's name on the Hub, if it was a local folder here"
    )
    parser.add_argument("--commit_message", "--commit-message", default="Upload a calmtune run", help="of the commit")
    parser.add_argument("--dry_run", "--dry-run", action="store_true", help="list files and sizes; upload nothing")


def run(options: argparse.Namespace) -> None:
    """Publish, and say where."""
    folder = RunFolder(options.run_folder)
    folder.require()
    if not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} holds no finished training; finish it with calmtune train")
    settings = folder.read_settings()
    repo_id = check_repository(options.hub_model_id or settings.get("hub_model_id") or folder.path.resolve().name)
    private = options.hub_private_repo or settings.get("hub_private_repo") is True or None
    token = None if options.dry_run else require_token(None)
    if not options.dry_run:
        repo_id = full_name(repo_id, token)
    uploads = prepare(folder, repo_id, options.base_model)
    if options.dry_run:
        say_files(uploads)
        visible = "private" if private else "as visible as new repositories of that account are"
        say(f"nothing was uploaded; {repo_id} would hold these {len(uploads)} files, {visible} if it is new")
        return
    say(f"published: {upload(uploads, repo_id, token, private, options.commit_message)}")


def push_run(folder: RunFolder, settings: dict[str, Any]) -> str:
    """Publish a run as its settings ask (``push_to_hub: true``); returns the address.

    Raises:
        ValueError: see :func:`require_token` and :func:`upload`.
    """
    token = require_token(settings.get("hub_token"))
    name = check_repository(settings.get("hub_model_id") or folder.path.resolve().name)
    repo_id = full_name(name, token)
    uploads = prepare(folder, repo_id, None)
    return upload(uploads, repo_id, token, settings.get("hub_private_repo"), "Upload a calmtune run")


def refuse_early(settings: dict[str, Any]) -> None:
    """Refuse before training what could not be published after it; asks nobody.

    Raises:
        ValueError: no token, no network wanted, a bad name, or a base that nobody else could load.
    """
    from calmtune.report.card_names import hub_name

    require_token(settings.get("hub_token"))
    check_repository(settings.get("hub_model_id") or Path(settings["output_dir"]).resolve().name)
    base = str(settings["model_name_or_path"])
    if hub_name(base) is None:
        raise ValueError(
            f"push_to_hub: the base {base!r} is a local model, and an adapter on the Hub must call its base by a name "
            "there; leave push_to_hub out, and after training use calmtune push RUN --base_model NAME"
        )


def require_token(given: str | None) -> str:
    """The access token: the one given, that of HF_TOKEN, or that of ``hf auth login``.

    Raises:
        ValueError: there is none, or the environment forbids the network.
    """
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        name = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
        raise ValueError(f"nothing can be published while {name} is set; unset it, or use --dry_run")
    token = given or get_token()
    if not token:
        raise ValueError("no access token for the Hub; run `hf auth login`, or set HF_TOKEN to a token that may write")
    return token


def check_repository(name: str) -> str:
    """The repository's name, as it is.

    Raises:
        ValueError: it is none.
    """
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"hub_model_id: expected owner/name, got {name!r} ({error})") from error
    return name


def full_name(name: str, token: str | None) -> str:
    """``owner/name``; the owner is the token's where none is given.

    Raises:
        ValueError: the Hub refused the token.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if "/" in name:
        return name
    try:
        return f"{HfApi(token=token).whoami()['name']}/{name}"
    except HfHubHTTPError as error:
        raise ValueError(f"the Hub does not know whose token this is ({_reason(error)}); log in again") from error


def prepare(folder: RunFolder, repo_id: str, base_model: str | None) -> list[Upload]:
    """Write the card for this repository, and collect what is published with it.

    Raises:
        ValueError: the base has no name on the Hub, or a file names a path of this machine.
    """
    from calmtune.cli.train import describe_run
    from calmtune.report.card_names import hub_name

    base = base_model or str(folder.read_settings()["model_name_or_path"])
    if hub_name(base) is None and (folder.path / "adapter_config.json").is_file():
        raise ValueError(
            f"the base {base!r} is a local model, and an adapter must call its base by a name that others can load; "
            "give --base_model NAME, its name on the Hub"
        )
    describe_run(folder, summary_of(folder), base_model=base_model, repo_id=repo_id)
    return files_to_publish(folder, base_model)


def summary_of(folder: RunFolder) -> Summary | None:
    """The run's figures from its stored predictions, or None where it was not evaluated."""
    from calmtune.cli.comparison import compare_runs, summary_options
    from calmtune.report import summarise

    if not folder.predictions("tuned", "test").is_file():
        warn(f"the card will have no figures; first run: {command('calmtune', 'evaluate', folder.path)}")
        return None
    note("computing the figures of the card")
    return summarise(compare_runs([folder]), **summary_options(folder))


def say_files(uploads: Sequence[Upload]) -> None:
    """Names and sizes."""
    for one in uploads:
        say(f"{one.size:>14,}  {one.name}")


def upload(uploads: Sequence[Upload], repo_id: str, token: str | None, private: bool | None, message: str) -> str:
    """Make the repository where there is none, and put all files into one commit.

    Args:
        uploads: the files.
        repo_id: ``owner/name``.
        token: may write there.
        private: of a new repository; None leaves it to the account.
        message: of the commit.

    Returns:
        The repository's address.

    Raises:
        ValueError: the Hub refuses, or the repository is there already and public, though a private one was asked for.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(token=token, library_name="calmtune")
    try:
        url = api.create_repo(repo_id, private=private, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise ValueError(f"{repo_id} is there already and public; choose another name, or make it private first")
        note(f"uploading {len(uploads)} files, {sum(one.size for one in uploads):,} bytes, to {repo_id}")
        operations = [CommitOperationAdd(one.name, one.content or str(one.path)) for one in uploads]
        api.create_commit(repo_id, operations, commit_message=message)
    except HfHubHTTPError as error:
        raise ValueError(f"{repo_id}: the Hub refused ({_reason(error)}); nothing was published") from error
    return str(url)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
