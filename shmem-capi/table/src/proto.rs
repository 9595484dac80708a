//! C prototypes as the table writes them, with `T` for a type and `N` for a width.

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its C type, as `const T *`.
    pub ty: String,
    /// Its name.
    pub name: String,
}

/// A prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proto {
    /// The result's C type.
    pub ret: String,
    /// The routine's name.
    pub name: String,
    /// The parameters, none for `(void)`.
    pub params: Vec<Param>,
}

impl Proto {
    /// Reads a prototype: a type, a name, and in parentheses types with names.
    ///
    /// # Panics
    /// If `text` is none: the table is part of the program.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (head, params) = text
            .strip_suffix(')')
            .and_then(|text| text.split_once('('))
            .unwrap_or_else(|| panic!("no prototype: {text}"));
        let Param { ty: ret, name } = declaration(head);
        let params = match params {
            "void" => Vec::new(),
            params => params.split(", ").map(declaration).collect(),
        };
        Self { ret, name, params }
    }

    /// As C source, without the semicolon.
    #[must_use]
    pub fn c(&self) -> String {
        let params: Vec<String> = self.params.iter().map(Param::c).collect();
        let params = match params.is_empty() {
            true => "void".to_owned(),
            false => params.join(", "),
        };
        let Self { ret, name, .. } = self;
        format!("{}({params})", spelled(ret, name))
    }
}

impl Param {
    /// As C source.
    #[must_use]
    pub fn c(&self) -> String {
        spelled(&self.ty, &self.name)
    }
}

fn spelled(ty: &str, name: &str) -> String {
    match ty.ends_with('*') || name.is_empty() {
        true => format!("{ty}{name}"),
        false => format!("{ty} {name}"),
    }
}

/// Splits `const T *dest` into type and name.
fn declaration(text: &str) -> Param {
    if text == "..." {
        return Param {
            ty: text.to_owned(),
            name: String::new(),
        };
    }
    let at = text
        .rfind([' ', '*'])
        .unwrap_or_else(|| panic!("no declaration: {text}"));
    Param {
        ty: text[..=at].trim_end().to_owned(),
        name: text[at + 1..].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prototypes_survive() {
        for text in [
            "void shmem_T_put(T *dest, const T *source, size_t nelems, int pe)",
            "void *shmem_malloc(size_t size)",
            "void shmem_quiet(void)",
            "void shmem_pcontrol(int level, ...)",
            "unsigned long long shmem_ulonglong_g(const unsigned long long *source, int pe)",
        ] {
            assert_eq!(Proto::parse(text).c(), text);
        }
    }

    #[test]
    fn types_and_names_part() {
        let proto = Proto::parse("void *f(const T *a, int b)");
        assert_eq!(proto.ret, "void *");
        assert_eq!(proto.params[0].ty, "const T *");
        assert_eq!(proto.params[1].name, "b");
    }
}
