//! From text to tokens.

use super::error_at;
use stead_core::Result;

/// A token. Spelled variants of one operator (`&&` and `and`) are one symbol.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A number, never negative, always finite.
    Number(f64),
    /// Text that stood in quotes.
    Text(String),
    /// A bare name, which may be a function.
    Name(String),
    /// A name in backticks.
    Quoted(String),
    /// `$3`
    Position(usize),
    /// An operator, a bracket, a comma or a keyword.
    Symbol(&'static str),
    /// After the last token.
    End,
}

impl Token {
    /// How the token is called in messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Number(n) => format!("the number {n}"),
            Token::Text(_) => "a text in quotes".into(),
            Token::Name(n) => format!("'{n}'"),
            Token::Quoted(n) => format!("'`{n}`'"),
            Token::Position(n) => format!("'${n}'"),
            Token::Symbol(s) => format!("'{s}'"),
            Token::End => "the end".into(),
        }
    }
}

/// Words that cannot be bare column names.
const KEYWORDS: [&str; 5] = ["and", "or", "not", "in", "is"];

/// Longest first, so that `<=` is not read as `<` and `=`.
const SYMBOLS: [(&str, &str); 23] = [
    ("==", "=="),
    ("!=", "!="),
    ("<>", "!="),
    ("<=", "<="),
    (">=", ">="),
    ("!~", "!~"),
    ("=~", "~"),
    ("&&", "and"),
    ("||", "or"),
    ("=", "=="),
    ("<", "<"),
    (">", ">"),
    ("!", "not"),
    ("~", "~"),
    ("+", "+"),
    ("-", "-"),
    ("*", "*"),
    ("/", "/"),
    ("%", "%"),
    ("(", "("),
    (")", ")"),
    (",", ","),
    ("\u{2212}", "-"),
];

fn starts_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// True if `name` can stand for itself without backticks.
pub(super) fn is_bare(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(starts_name)
        && chars.all(in_name)
        && !KEYWORDS.iter().any(|k| k.eq_ignore_ascii_case(name))
}

/// All tokens with the byte at which each begins; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, len) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if starts_name(c) {
            let len = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
            let word = &rest[..len];
            match KEYWORDS.iter().find(|k| k.eq_ignore_ascii_case(word)) {
                Some(k) => (Token::Symbol(k), len),
                None => (Token::Name(word.into()), len),
            }
        } else if c.is_ascii_digit() || (c == '.' && rest[1..].starts_with(is_digit)) {
            number(text, at)?
        } else if c == '\'' || c == '"' || c == '`' {
            let (s, len) = quoted(text, at, c)?;
            if c == '`' && s.is_empty() {
                return Err(error_at(text, at, "a column name is empty", ""));
            }
            (if c == '`' { Token::Quoted(s) } else { Token::Text(s) }, len)
        } else if c == '$' {
            let len = 1 + rest[1..].find(|c| !is_digit(c)).unwrap_or(rest.len() - 1);
            match rest[1..len].parse() {
                Ok(n) => (Token::Position(n), len),
                Err(_) => {
                    let hint = "write for example $0 for the first column";
                    return Err(error_at(text, at, "'$' needs a column position", hint));
                }
            }
        } else if let Some((s, name)) = SYMBOLS.iter().find(|(s, _)| rest.starts_with(s)) {
            (Token::Symbol(name), s.len())
        } else {
            let hint = match c {
                '&' => "write 'and' or '&&'",
                '|' => "write 'or' or '||'",
                '^' => "there is no power operator; multiply, or use exp() and log()",
                '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' => {
                    "put text in straight quotes: 'text'"
                }
                _ => "put text in quotes and odd column names in backticks",
            };
            return Err(error_at(text, at, &format!("unexpected '{}'", c.escape_debug()), hint));
        };
        out.push((token, at));
        at += len;
    }
    out.push((Token::End, text.len()));
    Ok(out)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn number(text: &str, at: usize) -> Result<(Token, usize)> {
    let rest = &text.as_bytes()[at..];
    let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut len = digits(0);
    if rest.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let n = digits(len + 1 + sign);
        if n > 0 {
            len += 1 + sign + n;
        }
    }
    match text[at..at + len].parse::<f64>() {
        Ok(n) if n.is_finite() => Ok((Token::Number(n), len)),
        _ => Err(error_at(text, at, "a number is too large", "the largest is about 1.8e308")),
    }
}

/// What stands between two `quote`s, a doubled one meaning itself, and the length with the quotes.
fn quoted(text: &str, at: usize, quote: char) -> Result<(String, usize)> {
    let mut s = String::new();
    let mut chars = text[at + 1..].char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        if c != quote {
            s.push(c);
        } else if chars.next_if(|(_, c)| *c == quote).is_some() {
            s.push(quote);
        } else {
            return Ok((s, i + 2));
        }
    }
    let hint = format!("a {quote} inside is written twice: {quote}{quote}");
    Err(error_at(text, at, &format!("this {quote} is not closed"), &hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(s: &str) -> Vec<Token> {
        tokens(s).expect("tokens").into_iter().map(|(t, _)| t).collect()
    }

    #[test]
    fn operators_have_one_spelling() {
        let s = |t| Token::Symbol(t);
        assert_eq!(
            kinds("a&&b AND !c<>1.5e3"),
            [
                Token::Name("a".into()),
                s("and"),
                Token::Name("b".into()),
                s("and"),
                s("not"),
                Token::Name("c".into()),
                s("!="),
                Token::Number(1500.0),
                Token::End
            ]
        );
        assert_eq!(kinds("'it''s' `a b` $12 .5")[0], Token::Text("it's".into()));
        assert_eq!(kinds("'it''s' `a b` $12 .5")[1], Token::Quoted("a b".into()));
        assert_eq!(kinds("'it''s' `a b` $12 .5")[2], Token::Position(12));
        assert_eq!(kinds("'it''s' `a b` $12 .5")[3], Token::Number(0.5));
        assert_eq!(kinds("1e")[1], Token::Name("e".into()));
        for bad in ["'", "`x", "``", "$", "$x", "1e999", "a & b", "#", "$99999999999999999999999"] {
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }
}
