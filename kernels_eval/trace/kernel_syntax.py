"""Tracing, interpreter and worker processes: syntax that kernels may use. All else is refused before it runs.

The interpreter runs a kernel's body as Python, in the process that owns the tensors and the counts. The body must
therefore reach only values, `triton.language` and other kernels: no imports, only attributes of tensors and types, and
only names that are parameters, locals, or declared with the kernel. Triton's own compiler refuses everything else too,
or cannot translate it: no honest kernel is lost.
"""

import ast
from collections.abc import Mapping

from kernels_eval.trace.named_tuples import field_name
from kernels_eval.trace.schema import Global, KernelSource, LanguageName, Limits, ModuleName, NamedTupleClass

BUILTINS = frozenset(
    {"range", "len", "min", "max", "abs", "int", "float", "bool", "print", "tuple", "list", "isinstance", "slice"}
)
"""Python's own names that kernels may use."""
CONSTANT_BUILTINS = BUILTINS | {
    "all", "any", "divmod", "enumerate", "pow", "reversed", "round", "sorted", "sum", "zip",
}  # fmt: skip
"""The same for functions of constants: Triton runs them as Python, on numbers, texts, types and tuples."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _rounded(text: str) -> frozenset[str]:
    """Names of functions that exist for each rounding: to nearest, towards zero, down and up."""
    return frozenset(f"{word}_r{mode}" for word in text.split() for mode in "nzdu")


INTERPRETER_NAMES = _words(
    """
    interpreter_semantic _InterpreterComparison _kernel_and _kernel_or _kernel_not _kernel_condition _kernel_turn
    _kernel_constant _kernel_branch _kernel_joined _kernel_ended _kernel_unanswered
    _kernel_assert _kernel_refuse _kernel_value
    """
)
"""Names that the interpreter's rewriting of a kernel refers to; no kernel may use them itself."""
OF_CONSTANTS = ("_log2", "_is_power_of_two", "get_int_dtype")
"""Functions of `triton.language.standard` and `.core` that kernels import: they compute constants."""
COMBINING = (
    "_sum_combine", "_prod_combine", "_xor_combine", "_or_combine", "_elementwise_max", "_elementwise_min",
    "_argmax_combine_tie_break_left", "_argmax_combine_tie_break_fast",
    "_argmin_combine_tie_break_left", "_argmin_combine_tie_break_fast",
)  # fmt: skip
"""Functions of `triton.language.standard` that kernels import: they combine two elements of a reduction or scan."""
_MODULES: dict[str, frozenset[str]] = {
    "triton": frozenset({"cdiv", "next_power_of_2"}),
    "triton.language": _words(
        """
        abs add arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_max
        atomic_min atomic_or atomic_xchg atomic_xor bfloat16 block_type broadcast broadcast_to cast cat cdiv
        ceil clamp const constexpr cos cumprod cumsum debug_barrier device_assert device_print div_rn dot
        dot_scaled dtype erf exp exp2 expand_dims fdiv flip float16 float32 float64 float8e4b15 float8e4b8
        float8e4nv float8e5 float8e5b16 floor fma full gather histogram inline_asm_elementwise int1 int16 int32
        int64 int8 interleave join load load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor
        map_elementwise max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs
        pair_uniform_to_normal permute philox philox_impl pi32_t pointer_type program_id rand rand4x randint
        randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin slice softmax sort split
        sqrt sqrt_rn squeeze static_assert static_print static_range store store_tensor_descriptor sub sum
        swizzle2d tensor tensor_descriptor to_tensor topk trans tuple uint16 uint32 uint64 uint8
        uint_to_uniform_float umulhi unsqueeze view void where xor_sum zeros zeros_like advance PropagateNan
        get_int_dtype bitonic_merge
        """
    )
    | frozenset((*OF_CONSTANTS, *COMBINING)),
    "triton.language.math": _words(
        """
        abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi
        """
    ),
    "triton.language.extra": frozenset({"gdc_wait", "gdc_launch_dependents"}),
    "libdevice": _words(
        """
        abs acos acosh asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz copysign cos cosh cospi
        cyl_bessel_i0 cyl_bessel_i1 double2hiint double2loint double_as_longlong erf erfc erfcinv erfcx
        erfinv exp exp10 exp2 expm1 fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f
        fast_logf fast_powf fast_sinf fast_tanf fast_tanhf fdim ffs finitef float_as_int float_as_uint floor
        fma fmod hadd hiloint2double hypot ilogb int2double_rn int_as_float isfinited isinf isnan j0 j1 jn
        ldexp lgamma llrint llround log log10 log1p log2 logb longlong_as_double mul24 mulhi nearbyint
        nextafter norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp64h remainder rhadd rhypot rint rnorm3d
        rnorm4d round rsqrt rsqrt_rn sad saturatef scalbn signbit sin sinh sinpi sqrt tan tanh tgamma trunc
        uint2double_rn uint_as_float y0 y1 yn
        """
    )
    | _rounded(
        """
        add div double2float double2int double2ll double2uint double2ull float2int float2ll float2uint
        float2ull fma int2float ll2double ll2float mul rcp sqrt sub uint2float ull2double ull2float
        """
    ),
    "math": _words(
        """
        pi e tau inf nan sqrt log log2 log10 exp ceil floor pow prod gcd
        """
    ),
}
_INNER: dict[tuple[str, str], str] = {
    ("triton", "language"): "triton.language",
    ("triton.language", "math"): "triton.language.math",
    ("triton.language", "extra"): "triton.language.extra",
    ("triton.language.extra", "cuda"): "triton.language.extra",
    ("triton.language.extra", "hip"): "triton.language.extra",
    ("triton.language.extra", "libdevice"): "libdevice",
    ("triton.language", "standard"): "triton.language",
    ("triton.language", "core"): "triton.language",
    ("triton.language", "PropagateNan"): "PropagateNan",
}
_MODULES["PropagateNan"] = frozenset({"ALL", "NONE"})
_VALUE_ATTRIBUTES = _words(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min
    atomic_or atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum dtype erf exp exp2
    expand_dims flip floor gather histogram item log log2 logical_and logical_or max min permute ravel reduce
    reduce_or reshape rsqrt sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans type view xor_sum
    shape numel value element_ty scalar primitive_bitwidth int_bitwidth fp_mantissa_width exponent_bias itemsize
    rank ndim block_shape strides load scatter is_floating is_fp16 is_bf16 is_fp32 is_fp64 is_fp8 is_int is_int1
    is_int8 is_int16 is_int32 is_int64 is_ptr is_int_signed is_int_unsigned is_bool is_block is_uint8 is_uint16
    is_uint32 is_uint64 is_standard_floating is_fp8e4nv is_fp8e5 is_fp8e4b15 is_fp8e4b8 is_fp8e5b16 is_const is_void
    get_int_max_value get_int_min_value get_block_shapes nbytes name pointee
    """
)
_OF_PLAIN_VALUES = _words("bit_count bit_length count endswith index is_integer lower startswith upper")
"""Methods of numbers, texts and tuples for functions of constants."""
LIMITS = ("min", "max", "eps", "tiny", "smallest_normal", "resolution", "bits")
"""Attributes of `torch.finfo` and `torch.iinfo`, which defaults of parameters may use."""
_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Return, ast.Pass, ast.Assert,
    ast.Break, ast.Continue, ast.Raise,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Constant, ast.Attribute, ast.Subscript,
    ast.Name, ast.List, ast.Tuple, ast.Slice, ast.JoinedStr, ast.FormattedValue, ast.NamedExpr, ast.Starred,
    ast.ListComp,
)  # fmt: skip
_PARTS = (
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.keyword, ast.comprehension, ast.arguments,
    ast.arg,
)  # fmt: skip


def own_field(name: str) -> str:
    """Return the name of a named tuple's field in the processes that run or compile kernels."""
    return field_name(name, _VALUE_ATTRIBUTES)


class ForbiddenSyntaxError(Exception):
    """Raised if a kernel uses syntax that is not allowed."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def checked_tree(kernel: KernelSource) -> ast.FunctionDef:
    """Return a kernel's function, with line numbers of the candidate's source, without annotations on its parameters.

    Fields of named tuples have their names of kernels_eval.trace.named_tuples.
    Raises ForbiddenSyntaxError if it uses syntax that is not allowed.
    """
    try:
        tree = ast.parse("\n" * (kernel.line - 1) + kernel.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ForbiddenSyntaxError(f"the source of {kernel.name} cannot be read: {error}", kernel.line) from error
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef) or tree.body[0].name != kernel.name:
        raise ForbiddenSyntaxError(f"{kernel.name} is not one function", kernel.line)
    function = tree.body[0]
    if function.decorator_list or function.args.vararg or function.args.kwarg or getattr(function, "type_params", None):
        raise ForbiddenSyntaxError(f"{kernel.name} has decorators or a variable number of arguments", kernel.line)
    _Check(function, kernel).run()
    return function


def bound_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function itself binds: parameters and assigned names."""
    names = {argument.arg for argument in parameters(function)}
    for node in nodes_of(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
    return names


def parameters(function: ast.FunctionDef) -> list[ast.arg]:
    """Return a function's parameters in order."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def constexpr_parameters(function: ast.FunctionDef) -> set[str]:
    """Return the names of parameters that are annotated as compile-time constants."""
    return {
        argument.arg
        for argument in parameters(function)
        if argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
    }


def annotation_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that the annotations of a function use: the compiler reads them."""
    annotations = [argument.annotation for argument in parameters(function)]
    annotations += [node.annotation for node in nodes_of(function) if isinstance(node, ast.AnnAssign)]
    return {
        node.id
        for annotation in annotations
        if annotation is not None
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    }


def free_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function uses and does not bind, annotations apart."""
    bound = bound_names(function)
    return {
        node.id
        for part in _checked_parts(function)
        for node in nodes_of(part, only_run=True)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound
    }


def nodes_of(root: ast.AST, only_run: bool = False) -> list[ast.AST]:
    """Return all nodes of a tree, as `ast.walk`, in half its time: every kernel passes here more than once.

    `only_run`: without annotations of local variables and what `raise` raises.
    """
    found = [root]
    for node in found:
        if only_run and isinstance(node, ast.Raise):
            continue
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not (
                only_run and name == "annotation" and isinstance(node, ast.AnnAssign)
            ):
                found.append(value)
    return found


def _checked_parts(function: ast.FunctionDef) -> list[ast.AST]:
    defaults = [*function.args.defaults, *(value for value in function.args.kw_defaults if value is not None)]
    return [*defaults, *function.body]


class _Check:
    def __init__(self, function: ast.FunctionDef, kernel: KernelSource) -> None:
        self._function = function
        self._runs_as_python = kernel.is_constexpr_function
        self._declared: Mapping[str, Global] = kernel.globals
        self._fields = frozenset(kernel.fields)
        self._bound = bound_names(function)

    def run(self) -> None:
        for name in self._bound | self._declared.keys():
            if name.startswith("__") or name in INTERPRETER_NAMES:
                raise ForbiddenSyntaxError(f"a kernel cannot use the name {name}", self._function.lineno)
        for part in _checked_parts(self._function):
            self._check(part)

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            if self._module_of(node.value) is not None:
                self._check_member(node)
                return
            if isinstance(node.value, ast.Name) and isinstance(self._declared.get(node.value.id), Limits):
                if node.attr in LIMITS:
                    return
                self._refuse(node, f"a kernel cannot use {ast.unparse(node)}")
            if node.attr not in _VALUE_ATTRIBUTES and node.attr in self._fields and isinstance(node.ctx, ast.Load):
                node.attr = own_field(node.attr)
            elif node.attr not in _VALUE_ATTRIBUTES and not (self._runs_as_python and node.attr in _OF_PLAIN_VALUES):
                self._refuse(node, f"a kernel cannot use the attribute .{node.attr}{_instead_of(node)}")
            if not isinstance(node.ctx, ast.Load):
                self._refuse(node, f"a kernel cannot assign to .{node.attr}")
        elif isinstance(node, ast.Raise):
            if self._runs_as_python:
                self._refuse(node, "a function of constants cannot use raise")
            return  # the interpreter replaces it by a call, and the compiler refuses it, where the kernel reaches it
        elif isinstance(node, ast.Name):
            self._check_name(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and self._is_named_tuple(node.func.id):
            for given in node.keywords:
                given.arg = None if given.arg not in self._fields else own_field(given.arg)
        elif isinstance(node, ast.keyword):
            if node.arg is None or node.arg.startswith("_"):
                self._refuse(node.value, f"a kernel cannot pass the argument {node.arg or '**'}")
        elif isinstance(node, ast.AnnAssign):
            if not isinstance(node.target, ast.Name):
                self._refuse(node, "a kernel can only annotate plain names")
            for child in filter(None, (node.target, node.value)):
                self._check(child)
            return
        elif not isinstance(node, _STATEMENTS + _EXPRESSIONS + _PARTS):
            self._refuse(node, f"a kernel cannot use {_NAMES.get(type(node).__name__, type(node).__name__)}")
        for child in ast.iter_child_nodes(node):
            self._check(child)

    def _is_named_tuple(self, name: str) -> bool:
        return name not in self._bound and isinstance(self._declared.get(name), NamedTupleClass)

    def _check_name(self, node: ast.Name) -> None:
        if node.id in self._bound:
            return
        declared = self._declared.get(node.id)
        if isinstance(declared, ModuleName):
            self._refuse(node, f"a kernel cannot pass the module {node.id} around")
        if isinstance(declared, LanguageName) and declared.name not in _MODULES[declared.module]:
            self._refuse(node, f"a kernel cannot use {declared.name}")
        if node.id.startswith("__") or node.id in INTERPRETER_NAMES:
            self._refuse(node, f"a kernel cannot use the name {node.id}")

    def _module_of(self, node: ast.AST) -> str | None:
        """Return the module that an expression refers to, or None."""
        if isinstance(node, ast.Name):
            declared = self._declared.get(node.id)
            return declared.name if isinstance(declared, ModuleName) and node.id not in self._bound else None
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            return _INNER.get((outer, node.attr)) if outer is not None else None
        return None

    def _check_member(self, node: ast.Attribute) -> None:
        outer = self._module_of(node.value)
        assert outer is not None
        if node.attr not in _MODULES[outer] or not isinstance(node.ctx, ast.Load):
            self._refuse(node, f"a kernel cannot use {ast.unparse(node)}")

    def _refuse(self, node: ast.AST, message: str) -> None:
        raise ForbiddenSyntaxError(message, getattr(node, "lineno", self._function.lineno))


def _instead_of(node: ast.Attribute) -> str:
    """Return what to write instead of an attribute that may be a field: only a parameter can be a named tuple."""
    if node.attr.startswith("_") or not isinstance(node.value, ast.Name):
        return ""
    return f"; if {node.value.id} is a named tuple, its class has to be a global of the file"


_NAMES = {
    "Import": "import", "ImportFrom": "import", "Lambda": "lambda", "Try": "try", "With": "with", "Global": "global",
    "Nonlocal": "nonlocal", "FunctionDef": "a function of its own", "ClassDef": "class", "Dict": "a dictionary",
    "Yield": "yield", "Delete": "del",
}  # fmt: skip
