//! Every bound of the configuration language, by name: what a file may hold, and what a run may use.

/// Bytes of one source file. Larger files are refused with a diagnostic.
pub const SOURCE_BYTES_MAX: usize = 4 << 20;
/// Files that one configuration may include, the first one counted.
pub const FILES_MAX: usize = 64;
/// How deep `include_file` and `import_file` may nest.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Tokens of a whole configuration, after the preprocessor. More are refused: defines can multiply text.
pub const TOKENS_MAX: usize = 1_000_000;
/// Definitions that `#!define` and its relatives may make.
pub const DEFINES_MAX: usize = 4096;
/// Matches that the substitutions (`#!subst` and its relatives) of a configuration may replace. Each may make strings
/// longer for the next.
pub const REPLACEMENTS_MAX: usize = 1_000_000;
/// Bytes of strings that the substitutions of a configuration may read, each string once for each of them.
pub const SUBSTITUTED_BYTES_MAX: usize = 256 << 20;
/// How deep one definition may expand into others.
pub const DEFINE_DEPTH_MAX: usize = 16;
/// How deep `#!ifdef` may nest.
pub const CONDITIONAL_DEPTH_MAX: usize = 64;
/// How deep blocks and statements may nest.
pub const STATEMENT_DEPTH_MAX: usize = 64;
/// How deep an expression may nest; a chain of operators counts one for each operator.
pub const EXPRESSION_DEPTH_MAX: usize = 200;
/// How deep pseudo-variables may nest inside the names and indices of others.
pub const VARIABLE_DEPTH_MAX: usize = 8;
/// Arguments of one call.
pub const ARGUMENTS_MAX: usize = 32;
/// Diagnostics that one load reports; the rest is counted.
pub const DIAGNOSTICS_MAX: usize = 200;
/// Instructions of a whole program.
pub const CODE_MAX: usize = 1 << 20;
/// Distinct `$var` names of a program.
pub const LOCALS_MAX: usize = 1024;
/// Routes of a program.
pub const ROUTES_MAX: usize = 4096;
/// Bytes of one string constant.
pub const CONSTANT_BYTES_MAX: usize = 0xffff;

/// Bytes of the text of one regular expression.
pub const REGEX_TEXT_MAX: usize = 4096;
/// Bytes that the compiled program of one regular expression may take.
pub const REGEX_PROGRAM_MAX: usize = 256 << 10;
/// Bytes that the dense automaton of one regular expression may take; past it, the slower engine runs it.
pub const REGEX_DENSE_MAX: usize = 64 << 10;
/// Bytes of the text of a regular expression that a script builds while it runs.
pub const REGEX_DYNAMIC_TEXT_MAX: usize = 256;
/// Compiled regular expressions that a machine remembers of those built while it runs.
pub const REGEX_DYNAMIC_CACHE: usize = 8;

/// Instructions that one run of a script may take, resumptions included.
pub const STEPS_MAX: u32 = 100_000;
/// How deep `route(...)` may call.
pub const CALL_DEPTH_MAX: usize = 100;
/// Bytes that the strings of one run may take.
pub const ARENA_BYTES_MAX: usize = 1 << 20;
/// Bytes of one string value that a script builds.
pub const STRING_BYTES_MAX: usize = 64 << 10;
/// Bytes of strings above which a machine first looks for those that nobody uses any more.
pub const ARENA_COLLECT_BYTES: usize = 64 << 10;
/// Values that the operand stack may hold.
pub const STACK_MAX: usize = 16 << 10;

/// Values that one AVP store may hold.
pub const AVP_VALUES_MAX: usize = 256;
/// Bytes of names and string values that one AVP store may hold.
pub const AVP_BYTES_MAX: usize = 64 << 10;
