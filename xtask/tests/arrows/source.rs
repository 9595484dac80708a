//! Reads a file of Rust as tokens: the modules it declares, the names it defines, and the names it uses.
//!
//! Tokens are enough. A name that only a macro makes is taken as defined where the macro is called.

use std::collections::HashSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Body of a module: of a file, or in braces.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) modules: Vec<Declared>,
    /// Names of the functions, types, constants and macros that the module defines.
    pub(crate) items: HashSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two or more names outside of `use`.
    pub(crate) paths: Vec<Vec<String>>,
    /// Every name outside of `use`.
    pub(crate) names: HashSet<String>,
}

/// `mod name;` or `mod name { ... }`.
pub(crate) struct Declared {
    pub(crate) name: String,
    /// Path that an attribute gives.
    pub(crate) path: Option<String>,
    pub(crate) body: Option<Body>,
}

/// One name of a `use`.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// Name under which it is imported; none for `*`.
    pub(crate) name: Option<String>,
    /// Whether the module hands the name on (`pub use`).
    pub(crate) public: bool,
}

impl Body {
    /// # Panics
    /// If the text is not Rust.
    pub(crate) fn parse(text: &str) -> Self {
        let tokens: TokenStream = text.parse().expect("tokens of Rust");
        let mut body = Self::default();
        body.items_of(&tokens.into_iter().collect::<Vec<_>>());
        body
    }

    fn items_of(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        let mut attributes: Vec<String> = Vec::new();
        let mut public = false;
        while at < tokens.len() {
            let word = word(&tokens[at]);
            if punct(&tokens[at], '#') {
                let inner = tokens.get(at + 1).is_some_and(|token| punct(token, '!'));
                let text = tokens.get(at + 1 + usize::from(inner));
                attributes.extend(text.map(ToString::to_string).filter(|_| !inner));
                at += 2 + usize::from(inner);
                continue;
            }
            if word.as_deref() == Some("pub") {
                public = true;
                at += 1;
                if let Some(TokenTree::Group(group)) = tokens.get(at)
                    && group.delimiter() == Delimiter::Parenthesis
                {
                    at += 1;
                }
                continue;
            }
            let end = at + end_of_item(&tokens[at..]);
            if !attributes.iter().any(|text| only_in_tests(text)) {
                self.item(&tokens[at..end], &attributes, public);
            }
            attributes.clear();
            public = false;
            at = end;
        }
    }

    fn item(&mut self, tokens: &[TokenTree], attributes: &[String], public: bool) {
        let words: Vec<_> = tokens.iter().map_while(word).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["use", ..] => self.import(&tokens[1..], Vec::new(), public),
            ["mod", name, ..] => {
                let body = match tokens.get(2) {
                    Some(TokenTree::Group(group)) => {
                        let mut body = Self::default();
                        body.items_of(&group.stream().into_iter().collect::<Vec<_>>());
                        Some(body)
                    }
                    _ => None,
                };
                let path = attributes.iter().find_map(|text| {
                    // Also of `cfg_attr`: the first of several.
                    let (_, path) = text.split_once("path = \"")?;
                    Some(path.split('"').next()?.to_owned())
                });
                let name = name.to_owned();
                self.modules.push(Declared { name, path, body });
            }
            ["macro_rules", ..] => {
                self.items.extend(tokens.get(2).and_then(word));
                self.uses(&tokens[3..]);
            }
            _ => {
                let kinds = [
                    "fn", "struct", "enum", "union", "trait", "type", "const", "static",
                ];
                let named = words.iter().rposition(|word| kinds.contains(word));
                // `impl` and `extern "C" {` define nothing by these names.
                if let Some(kind) = named.filter(|_| words[0] != "impl") {
                    self.items.extend(tokens.get(kind + 1).and_then(word));
                } else if words[..] == ["extern"] {
                    self.foreign(tokens);
                }
                self.uses(tokens);
            }
        }
    }

    /// Functions of `extern "C" fn` and of `extern "C" { ... }`, behind a string.
    fn foreign(&mut self, tokens: &[TokenTree]) {
        match tokens.last() {
            Some(TokenTree::Group(group)) if tokens.len() == 3 => {
                self.items_of(&group.stream().into_iter().collect::<Vec<_>>());
            }
            _ => self.items.extend(tokens.get(3).and_then(word)),
        }
    }

    /// What follows `use`, or one part of a list in it.
    fn import(&mut self, tokens: &[TokenTree], mut path: Vec<String>, public: bool) {
        let mut tokens = tokens.iter().filter(|token| !punct(token, ':'));
        let mut name = None;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(list) => {
                    let parts: Vec<_> = list.stream().into_iter().collect();
                    for part in parts.split(|token| punct(token, ',')) {
                        self.import(part, path.clone(), public);
                    }
                    return;
                }
                TokenTree::Ident(word) if word == "as" => {
                    name = tokens.next().and_then(word_of);
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(star) if star.as_char() == '*' => {
                    self.imports.push(Import {
                        path,
                        name: None,
                        public,
                    });
                    return;
                }
                _ => {}
            }
        }
        if let Some(last) = path.last() {
            let name = name.or_else(|| Some(last.clone()));
            self.imports.push(Import { path, name, public });
        }
    }

    /// Names and paths of code, with the `use` lines in it.
    fn uses(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.uses(&group.stream().into_iter().collect::<Vec<_>>());
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = at + end_of_item(&tokens[at..]);
                    self.import(&tokens[at + 1..end], Vec::new(), false);
                    at = end;
                    continue;
                }
                TokenTree::Ident(word) => {
                    let mut path = vec![word.to_string()];
                    while colons(&tokens[at + 1..])
                        && let Some(next) = tokens.get(at + 3).and_then(word_of)
                    {
                        path.push(next);
                        at += 3;
                    }
                    self.names.insert(path[0].clone());
                    if path.len() > 1 {
                        self.paths.push(path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Whether an attribute leaves an item to tests or models.
fn only_in_tests(attribute: &str) -> bool {
    let text: String = attribute.split_whitespace().collect();
    ["[cfg(test", "[cfg(all(test", "[cfg(loom", "[cfg(all(loom"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// Number of tokens of the item that the tokens begin with: up to a semicolon or braces.
fn end_of_item(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    // The braces of a list in `use` do not end it, and an initializer may have some.
    let mut words = tokens.iter().map_while(word);
    let to_semicolon = matches!(
        words.next().as_deref(),
        Some("use" | "const" | "static" | "type")
    ) && words.next().as_deref() != Some("fn");
    let ends = |token: &&TokenTree| {
        if to_semicolon {
            punct(token, ';')
        } else {
            ends(token)
        }
    };
    tokens
        .iter()
        .position(|token| ends(&token))
        .map_or(tokens.len(), |last| last + 1)
}

fn word(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    }
}

fn word_of(token: &TokenTree) -> Option<String> {
    word(token)
}

fn punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

fn colons(tokens: &[TokenTree]) -> bool {
    tokens.len() > 1 && punct(&tokens[0], ':') && punct(&tokens[1], ':')
}
