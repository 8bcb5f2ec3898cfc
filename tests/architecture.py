"""The rules of the house as functions: source text and a module name in, violations out.

A module is named after its file, so the file of a package is ``holdfast.job.__init__``; its *room* is the
second word. The tables come first; to add a room, add it to ``MAY_KNOW``. Names are followed through
imports and aliases of one file, not through assignments, so this finds slips rather than tricks.
"""

from __future__ import annotations

import ast
import builtins
import graphlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# --- the tables -------------------------------------------------------------------------------

_WORDS = frozenset(
    {"values", "faults", "telemetry", "findings", "errors", "commit", "membership", "shipment"}
)
_DECIDERS = _WORDS | {"detect", "diagnose", "plan", "mitigate", "control", "reliability", "incidents"}
_WORLD = _DECIDERS | {"settings", "observe", "job"}
_ONLOOKER = _WORLD | {"simulate", "lab", "guard"}

MAY_KNOW: dict[str, frozenset[str]] = {
    "__init__": frozenset({"job"}),  # And that only lazily: `import holdfast` costs nothing.
    "values": frozenset({"findings", "faults"}),
    "faults": frozenset(),
    "telemetry": frozenset(),
    "findings": frozenset(),
    "errors": frozenset(),
    "commit": frozenset(),
    "shipment": frozenset({"telemetry"}),
    "membership": frozenset({"commit"}),
    "settings": _WORDS,
    "observe": _WORDS,
    "detect": _WORDS,
    "plan": _WORDS,
    "diagnose": _WORDS | {"observe", "detect"},
    "reliability": _WORDS | {"detect", "observe"},
    "mitigate": _WORDS | {"plan"},
    "incidents": _WORDS | {"diagnose", "mitigate"},
    "metrics": _WORDS | {"incidents"},
    "control": _WORDS | {"detect", "diagnose", "mitigate", "plan"},
    "simulate": _DECIDERS,
    "job": _WORDS | {"plan"},
    "lab": _WORLD,
    "guard": _WORLD | {"metrics"},
    "serve": _ONLOOKER | {"metrics"},
    "cli": _ONLOOKER | {"serve"},
}
"""Whom each room may import besides itself, at any depth and also under ``TYPE_CHECKING``."""

TORCH_ROOMS = frozenset({"job", "lab", "guard"})
LIBRARIES = {"job": frozenset({"msgspec", "torch"})}
"""Rooms that may import only these besides the standard library."""

PURE_ROOMS = _DECIDERS | {"simulate", "metrics"}
READERS: frozenset[str] = frozenset(
    {
        "holdfast.reliability.delimited",
        "holdfast.reliability.opening",
        "holdfast.reliability.ownlog",
        "holdfast.reliability.rawtables",
        "holdfast.reliability.sacct",
        "holdfast.reliability.sources",
    }
)
"""Modules of pure rooms that may read files; nothing else is forgiven them."""

_FILE = "touches files"
_CHANCE = "draws randomness that was not given"
_IMPURE = {
    reason: re.compile(pattern, re.VERBOSE)
    for reason, pattern in {
        "reads a clock": r"time(\..+)? | datetime\.(datetime|date)\.(now|utcnow|today)",
        "reads the environment": r"""
            os\.(?!(PathLike|fspath|path(\.(join|basename|dirname|split|splitext|normpath))?)$).+
            | sys\.(argv|path|flags)(\..+)? | platform(\..+)? | pathlib\.Path\.(cwd|home)""",
        _FILE: r"""
            builtins\.open | (io|codecs|gzip|bz2|lzma)\.open
            | (tempfile|shutil|fileinput|glob|mmap)(\..+)?
            | .*\.(read_text|read_bytes|write_(text|bytes|csv|parquet|json|ndjson|html|image)|tofile)
            | .*\.(iterdir|rglob|mkdir|rmdir|unlink|is_file|is_dir)
            | (polars|pandas)\.(read|scan)_\w+
            | numpy\.(load|loadtxt|genfromtxt|fromfile|memmap|save\w*)""",
        _CHANCE: r"""
            random\.(?!Random$).+ | secrets(\..+)? | uuid\.uuid[14]
            | numpy\.random\.(?!(Generator|BitGenerator|SeedSequence|RandomState|default_rng
                               |PCG64|PCG64DXSM|Philox|SFC64|MT19937)$).+""",
        "starts threads, processes or connections": r"""
            (subprocess|socket|socketserver|ssl|select|selectors|threading|_thread|asyncio
            |multiprocessing|concurrent|psutil|urllib\.request)(\..+)?""",
        "talks to the terminal": r"""
            builtins\.(print|input|breakpoint) | sys\.(stdin|stdout|stderr)(\..+)? | logging(\..+)?""",
    }.items()
}
_SEEDED = re.compile(
    r"random\.Random|numpy\.random\.(default_rng|SeedSequence|RandomState|PCG64|PCG64DXSM|Philox|SFC64|MT19937)"
)
"""What draws its seed from the machine when it is given none."""

_DANGEROUS = re.compile(
    r"""(pickle|_pickle|cloudpickle|dill)\.(\*|_?loads?|_?Unpickler(\..+)?) | (marshal|shelve)(\..+)?
        | builtins\.(eval|exec|compile) | yaml\.(\*|load|load_all|unsafe_load\w*|full_load\w*)""",
    re.VERBOSE,
)
MAY_BE_DANGEROUS = {"holdfast.job.boot": frozenset({"builtins.exec", "builtins.compile"})}
"""``boot`` runs the user's own script, as the interpreter would."""

_DECODING = re.compile(r"msgspec\.(json|msgpack)\.(decode|Decoder)")
_PLAIN = frozenset(
    {"Any", "Raw", "bool", "bytes", "dict", "float", "int", "list", "msgspec", "set", "str", "tuple"}
)
"""What types are made of that msgspec need not learn."""

# --- the checks -------------------------------------------------------------------------------


class Violation(NamedTuple):
    """A rule broken at a place."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


Finding = tuple[int, str]
"""Line and message, within one module."""


def check_tree(src: Path) -> list[Violation]:
    """Return every violation below ``src/holdfast``, import cycles included."""
    texts = {
        ".".join(path.relative_to(src).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sorted((src / "holdfast").rglob("*.py"))
    }
    if not texts:
        raise FileNotFoundError(f"{src} holds no holdfast/*.py to check")
    found = [violation for module, text in texts.items() for violation in check_module(text, module)]
    return found + check_cycles(texts)


def check_module(text: str, module: str) -> list[Violation]:
    """Return the violations that one module shows by itself, in the order of its lines."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [Violation(_file(module), error.lineno or 1, f"does not parse: {error.msg}")]
    reader = _Reader(module, tree)
    found = [
        *_check_rooms(reader),
        *_check_libraries(reader),
        *_check_danger(reader),
        *_check_decoders(reader),
    ]
    if _room(module) in PURE_ROOMS:
        found += [*_check_purity(reader), *_check_set_order(tree, _room(module))]
    return sorted({Violation(_file(module), line, message) for line, message in found})


def check_cycles(texts: Mapping[str, str]) -> list[Violation]:
    """Return one violation per cycle of imports that run when a module is loaded."""
    graph = {module: _loads(text, module, texts) for module, text in texts.items()}
    found: list[Violation] = []
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            # It comes with the imported before the importer. Cut it at one place, and look for the next.
            cycle: list[str] = error.args[1][::-1]
            line = graph[cycle[0]].pop(cycle[1])
            found.append(Violation(_file(cycle[0]), line, f"import cycle: {' -> '.join(cycle)}"))
        else:
            return found


def check_paths(text: str, file: str, folders: Iterable[Path]) -> list[Violation]:
    """Return the lines of a file that name one of the folders of this machine."""
    names = "|".join(re.escape(str(folder)) for folder in folders)
    pattern = re.compile(rf"(?<![\w.~-])({names})(?![\w-])")
    return [
        Violation(
            file, number, f"names {match[1]}, a folder of one machine; the project speaks of itself alone"
        )
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := pattern.search(line))
    ]


def _file(module: str) -> str:
    return f"src/{module.replace('.', '/')}.py"


# --- reading a module -------------------------------------------------------------------------


class _Seen(NamedTuple):
    """A name imported or used, in full: ``from a import b`` is ``a.b``, ``f().open`` is ``?.open``."""

    name: str
    line: int
    is_lazy: bool = False
    """Imported or called inside a function or under TYPE_CHECKING: not when the module is loaded."""
    call: ast.Call | None = None
    """The call, where the name is called."""


class _Reader(ast.NodeVisitor):
    """Collects what a module imports and which names it uses."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module = module
        self.room = module.split(".")[1]
        self.imports: list[_Seen] = []
        self.uses: list[_Seen] = []
        self._aliases: dict[str, str] = {}
        self._lazy_depth = 0
        for node in ast.walk(tree):  # First, because a function may use what is imported below it.
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._learn_names(node)
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add_import(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._add_import(f"{self._origin(node)}.{alias.name}", node)

    def visit_If(self, node: ast.If) -> None:
        is_typing = self._full_name(node.test) in {"typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"}
        self.visit(node.test)
        self._visit_all(node.body, lazily=is_typing)
        self._visit_all(node.orelse, lazily=False)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all(
            [*node.decorator_list, node.args, *([node.returns] if node.returns else [])], lazily=False
        )
        self._visit_all(node.body, lazily=True)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full_name(node.func)
        self.uses.append(_Seen(name, node.lineno, is_lazy=self._lazy_depth > 0, call=node))
        if name in {"importlib.import_module", "builtins.__import__"} and node.args:
            wanted = node.args[0]
            if isinstance(wanted, ast.Constant) and isinstance(wanted.value, str):
                self._add_import(wanted.value, node)
        self._visit_below_name(node.func)
        self._visit_all([*node.args, *node.keywords], lazily=False)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.uses.append(_Seen(self._full_name(node), node.lineno))
        self._visit_below_name(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.append(_Seen(self._full_name(node), node.lineno))

    def _learn_names(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                self._aliases[alias.asname or alias.name] = f"{self._origin(node)}.{alias.name}"
            elif alias.asname:
                self._aliases[alias.asname] = alias.name
            else:  # `import os.path` binds `os`.
                first = alias.name.partition(".")[0]
                self._aliases[first] = first

    def _origin(self, node: ast.ImportFrom) -> str:
        package = self.module.split(".")[: -node.level] if node.level else []
        return ".".join([*package, *([node.module] if node.module else [])])

    def _visit_all(self, nodes: Iterable[ast.AST], *, lazily: bool) -> None:
        self._lazy_depth += lazily
        for node in nodes:
            self.visit(node)
        self._lazy_depth -= lazily

    def _visit_below_name(self, node: ast.expr) -> None:
        # The outermost attribute has been noted with its full name; its parts would say the same again.
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name):
            self.visit(node)

    def _add_import(self, name: str, node: ast.stmt | ast.expr) -> None:
        self.imports.append(_Seen(name, node.lineno, is_lazy=self._lazy_depth > 0))

    def _full_name(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{self._full_name(node.value)}.{node.attr}"
        if not isinstance(node, ast.Name):
            return "?"
        # Ruff forbids shadowing builtins, so a builtin's name means the builtin.
        return self._aliases.get(node.id) or (f"builtins.{node.id}" if hasattr(builtins, node.id) else "?")


# --- who knows whom ---------------------------------------------------------------------------


def _room(name: str) -> str:
    """Return the room that a name of ours lives in; public names of the package itself come from job."""
    word = name.split(".")[1] if "." in name else "__init__"
    if word in MAY_KNOW:
        return word
    return "__init__" if word.startswith("__") else "job"


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "holdfast"


def _check_rooms(reader: _Reader) -> Iterator[Finding]:
    room = reader.room
    if room not in MAY_KNOW:
        yield 1, f"unknown room {room!r}: add it to MAY_KNOW in tests/architecture.py, with whom it may know"
        return
    ours = [item for item in reader.imports if _is_ours(item.name)]
    for item in (*ours, *_uses_of_unimported(reader)):
        if _room(item.name) not in MAY_KNOW[room] | {room, "__init__"}:
            allowed = ", ".join(sorted(MAY_KNOW[room])) or "nobody"
            yield item.line, f"{room} may not know {_room(item.name)} ({item.name}); it may know {allowed}"
    for item in ours:
        if room == "__init__" and not item.is_lazy:
            yield item.line, f"holdfast imports {item.name} when loaded; import it inside a function"


def _uses_of_unimported(reader: _Reader) -> list[_Seen]:
    # `import holdfast` and then `holdfast.guard.start()` is an import in all but name.
    imported = {_room(item.name) for item in reader.imports if _is_ours(item.name)}
    return [use for use in reader.uses if _is_ours(use.name) and _room(use.name) not in imported]


def _check_libraries(reader: _Reader) -> Iterator[Finding]:
    for item in reader.imports:
        top = item.name.partition(".")[0]
        if top == "torch" and reader.room not in TORCH_ROOMS:
            yield item.line, f"{reader.room} imports torch; only {', '.join(sorted(TORCH_ROOMS))} may"
        allowed = LIBRARIES.get(reader.room)
        if allowed is not None and top not in allowed | sys.stdlib_module_names | {"holdfast"}:
            yield item.line, f"{reader.room} imports {top}; of libraries it may only {sorted(allowed)}"


def _loads(text: str, module: str, modules: Collection[str]) -> dict[str, int]:
    """Return the modules of ours that loading a module loads, each with the line that does."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # check_module says so.
        return {}
    reader = _Reader(module, tree)
    loaded: dict[str, int] = {}
    for item in reader.imports:
        if not item.is_lazy:
            for name in _modules_behind(item.name, module, modules):
                loaded.setdefault(name, item.line)
    return loaded


def _modules_behind(name: str, importer: str, modules: Collection[str]) -> Iterator[str]:
    """Yield the module that holds a name, and the packages around it that the importer is not in already."""
    words = name.split(".")
    prefixes = [".".join(words[:end]) for end in range(1, len(words) + 1)]
    found = [m for prefix in prefixes for m in (prefix, f"{prefix}.__init__") if m in modules]
    for package in found[:-1]:
        if not importer.startswith(package.removesuffix("__init__")):
            yield package
    yield from found[-1:]


# --- purity and danger ------------------------------------------------------------------------


def _check_decoders(reader: _Reader) -> Iterator[Finding]:
    """Find types that are learned when they are first needed: two threads that do so at once end the process.

    (msgspec 0.22 reads what another thread has half learned.) What a module learns while it is loaded, one
    thread does.
    """
    for use in reader.uses:
        if use.call is None or not use.is_lazy or not _DECODING.fullmatch(use.name):
            continue
        types = [keyword.value for keyword in use.call.keywords if keyword.arg == "type"]
        if use.name.endswith(".Decoder"):
            types += use.call.args[:1]
        if {name for each in types for name in _words(each)} - _PLAIN:
            yield use.line, "learns a type when it is needed; make its Decoder when the module is loaded"


def _words(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _check_purity(reader: _Reader) -> Iterator[Finding]:
    found = [(seen, why) for seen in (*reader.imports, *reader.uses) for why in _impurities(seen.name)]
    found += [(use, why) for use in reader.uses for why in _impure_calls(use)]
    for seen, why in found:
        if why != _FILE or reader.module not in READERS:
            shown = seen.name.removeprefix("builtins.").removeprefix("?.")
            yield seen.line, f"{reader.room} is pure, but {shown} {why}"


def _impurities(name: str) -> Iterator[str]:
    for reason, pattern in _IMPURE.items():
        if pattern.fullmatch(name):
            yield reason


def _impure_calls(use: _Seen) -> Iterator[str]:
    """Yield what is wrong with a name because of how it is called."""
    if use.call is None:
        if use.name == "numpy.random.default_rng":  # Handed on to be called by others, without a seed.
            yield _CHANCE
        return
    given = [*use.call.args, *(keyword.value for keyword in use.call.keywords)]
    if _SEEDED.fullmatch(use.name) and not any(_is_given(value) for value in given):
        yield _CHANCE
    if use.name.endswith(".rvs") and "random_state" not in {keyword.arg for keyword in use.call.keywords}:
        yield _CHANCE
    if use.name.endswith(".open") and not any(_impurities(use.name)):
        yield _FILE


def _is_given(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is None)


def _check_danger(reader: _Reader) -> Iterator[Finding]:
    allowed = MAY_BE_DANGEROUS.get(reader.module, frozenset())
    for seen in (*reader.imports, *reader.uses):
        if _DANGEROUS.fullmatch(seen.name) and seen.name not in allowed:
            yield seen.line, f"{seen.name.removeprefix('builtins.')} runs what it reads; see MAY_BE_DANGEROUS"
        for keyword in seen.call.keywords if seen.call else []:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if (keyword.arg, value) in {("weights_only", False), ("allow_pickle", True)}:
                yield seen.line, f"{keyword.arg}={value!r} unpickles, which runs what it reads"


# --- the order of sets ------------------------------------------------------------------------

_ORDERLESS = frozenset({"sorted", "set", "frozenset", "any", "all", "len", "min", "max", "fsum"})
_ORDERED = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "sum"})
_ORDERED_METHODS = frozenset({"join", "fromkeys", "extend"})
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_SET_TYPES = frozenset({"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _check_set_order(tree: ast.Module, room: str) -> Iterator[Finding]:
    visitor = _SetOrder()
    visitor.visit(tree)
    for line in visitor.lines:
        yield line, f"{room} is pure, but the order of a set shows here; sort it first"


class _SetOrder(ast.NodeVisitor):
    """Collects the lines where a set is gone through in its own order."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._scopes: list[dict[str, bool]] = []
        self._forgiven: set[int] = set()

    def visit_Module(self, node: ast.Module) -> None:
        self._visit_scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node)

    def visit_For(self, node: ast.For) -> None:
        self._expect_order(node.iter)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._expect_order(node.value)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if id(node) not in self._forgiven:
            for generator in node.generators:
                self._expect_order(generator.iter)
        self.generic_visit(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self.visit_ListComp(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self.visit_ListComp(node)

    def visit_Set(self, node: ast.Set) -> None:
        self._forgiven.update(id(element) for element in node.elts)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if id(node) not in self._forgiven:
            self._expect_order(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in _ORDERLESS or method == "fsum":
            self._forgiven.update(id(argument) for argument in node.args)
        elif (name in _ORDERED and id(node) not in self._forgiven) or method in _ORDERED_METHODS:
            for argument in node.args:
                self._expect_order(argument)
        elif isinstance(node.func, ast.Attribute) and method == "pop" and not node.args:
            self._expect_order(node.func.value)
        self.generic_visit(node)

    def _expect_order(self, node: ast.expr) -> None:
        if self._is_set(node):
            self.lines.append(node.lineno)

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _SET_METHODS:
                return self._is_set(owner) or (isinstance(owner, ast.Name) and owner.id in _SET_TYPES)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub(), right=right):
                return self._is_set(left) or self._is_set(right) or _is_keys(left) or _is_keys(right)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body) or self._is_set(orelse)
            case ast.Name(id=name):
                return next((scope[name] for scope in reversed(self._scopes) if name in scope), False)
        return False

    def _visit_scope(self, node: ast.Module | _Function) -> None:
        self._scopes.append({})
        handled: set[int] = set()
        for child in _scope_nodes(node):
            match child:
                case ast.arg(arg=name, annotation=annotation):
                    self._bind(name, _is_set_type(annotation))
                case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                    self._bind(name, self._is_set(value))
                    handled.add(id(target))
                case ast.AnnAssign(target=ast.Name(id=name) as target, annotation=annotation):
                    self._bind(name, _is_set_type(annotation))
                    handled.add(id(target))
                case ast.AugAssign(target=target):
                    handled.add(id(target))
                case ast.Name(id=name, ctx=ast.Store()) if id(child) not in handled:
                    self._bind(name, False)
        self.generic_visit(node)
        self._scopes.pop()

    def _bind(self, name: str, is_set: bool) -> None:
        # A name that is a set only here and there is given the benefit of the doubt.
        self._scopes[-1][name] = is_set and self._scopes[-1].get(name, True)


def _scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope from top to bottom, without those of the functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _Function | ast.ClassDef):
            yield from _scope_nodes(child)


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _is_set_type(node: ast.expr | None) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _SET_TYPES
        case ast.Subscript(value=value):
            return _is_set_type(value)
        case ast.BinOp(left=left, right=right):
            return _is_set_type(left) or _is_set_type(right)
    return False
