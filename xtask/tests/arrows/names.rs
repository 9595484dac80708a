//! Finds the file that defines a name, through the `use` lines that hand it on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::source::{Body, Declared};

/// Modules and files of one crate.
pub(crate) struct Crate {
    modules: Vec<Module>,
    pub(crate) files: Vec<PathBuf>,
}

struct Module {
    /// Index of its file.
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    body: Body,
}

enum Found {
    Module(usize),
    /// What the file with this index defines by this name.
    Item(usize, String),
}

/// Arrows between files: who uses whom, and which names.
pub(crate) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// Names that are being looked up, in which modules: `use` lines that hand a name on in a circle end there.
type Asked = Vec<(usize, String)>;

impl Crate {
    /// Reads the crate whose root is this file. Its tests are left out.
    ///
    /// # Panics
    /// If a file that is declared cannot be read.
    pub(crate) fn read(root: &Path) -> Self {
        let mut this = Self {
            modules: Vec::new(),
            files: Vec::new(),
        };
        this.file(root.to_owned(), None, root.parent().expect("a folder"));
        this
    }

    /// `folder` has the files of modules that this file declares.
    fn file(&mut self, path: PathBuf, parent: Option<usize>, folder: &Path) -> usize {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = self.files.len();
        self.files.push(path);
        self.module(Body::parse(&text), file, parent, folder)
    }

    fn module(
        &mut self,
        mut body: Body,
        file: usize,
        parent: Option<usize>,
        folder: &Path,
    ) -> usize {
        let declared = std::mem::take(&mut body.modules);
        let this = self.modules.len();
        let children = BTreeMap::new();
        self.modules.push(Module {
            file,
            parent,
            children,
            body,
        });
        for Declared { name, path, body } in declared {
            let child = if let Some(body) = body {
                self.module(body, file, Some(this), &folder.join(&name))
            } else if let Some(path) = path {
                let path = self.files[file].with_file_name(path);
                let folder = path.parent().expect("a folder").to_owned();
                self.file(path, Some(this), &folder)
            } else {
                let inside = folder.join(&name);
                let beside = inside.with_extension("rs");
                let path = if beside.exists() {
                    beside
                } else {
                    inside.join("mod.rs")
                };
                self.file(path, Some(this), &inside)
            };
            self.modules[this].children.insert(name, child);
        }
        this
    }

    /// All arrows between files. A module that only hands on names of its children uses none of them.
    pub(crate) fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (at, module) in self.modules.iter().enumerate() {
            for found in self.used(at) {
                if let Found::Item(file, name) = found
                    && file != module.file
                    && !self.contains(file, module.file)
                {
                    arrows.entry((module.file, file)).or_default().insert(name);
                }
            }
        }
        arrows
    }

    /// What a module uses of others.
    fn used(&self, at: usize) -> Vec<Found> {
        let module = &self.modules[at];
        let Body {
            imports,
            paths,
            names,
            items,
            ..
        } = &module.body;
        let mut used: Vec<_> = paths
            .iter()
            .filter_map(|path| self.resolve(at, path, &mut Asked::new()))
            .collect();
        for import in imports {
            let from = self.resolve(at, &import.path, &mut Asked::new());
            match (&import.name, from) {
                (Some(name), _) if import.public && !names.contains(name) => {}
                (None, Some(Found::Module(from))) => {
                    let named = |name| {
                        imports
                            .iter()
                            .any(|other| other.name.as_ref() == Some(name))
                    };
                    let own = |name| {
                        items.contains(name) || module.children.contains_key(name) || named(name)
                    };
                    let foreign = names.iter().filter(|name| !own(name));
                    used.extend(
                        foreign.filter_map(|name| self.lookup(from, name, &mut Asked::new())),
                    );
                }
                (_, from) => used.extend(from),
            }
        }
        used
    }

    /// Whether a file is that of a module which contains the other: inside of a module everything is at hand.
    fn contains(&self, outer: usize, inner: usize) -> bool {
        let [outer, inner] = [outer, inner].map(|file| &*self.files[file]);
        let roots = ["mod.rs", "lib.rs", "main.rs"];
        let folder = match roots.iter().any(|root| outer.ends_with(root)) {
            true => outer.parent().expect("a folder").to_owned(),
            false => outer.with_extension(""),
        };
        inner.starts_with(folder)
    }

    fn resolve(&self, from: usize, path: &[String], asked: &mut Asked) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => Found::Module(self.modules[from].parent?),
            name => self.lookup(from, name, asked)?,
        };
        for name in rest {
            let Found::Module(module) = found else { break };
            found = if name == "super" {
                Found::Module(self.modules[module].parent?)
            } else {
                // Nothing defines it by name: a macro that is called there does.
                self.lookup(module, name, asked)
                    .unwrap_or_else(|| Found::Item(self.modules[module].file, name.clone()))
            };
        }
        Some(found)
    }

    fn lookup(&self, module: usize, name: &str, asked: &mut Asked) -> Option<Found> {
        let question = (module, name.to_owned());
        if asked.contains(&question) {
            return None;
        }
        asked.push(question);
        let found = self.look(module, name, asked);
        asked.pop();
        found
    }

    fn look(&self, module: usize, name: &str, asked: &mut Asked) -> Option<Found> {
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Found::Module(*child));
        }
        if here.body.items.contains(name) {
            return Some(Found::Item(here.file, name.to_owned()));
        }
        let named = here
            .body
            .imports
            .iter()
            .find(|import| import.name.as_deref() == Some(name));
        if let Some(import) = named {
            return self.resolve(module, &import.path, asked);
        }
        for import in here
            .body
            .imports
            .iter()
            .filter(|import| import.name.is_none())
        {
            if let Some(Found::Module(from)) = self.resolve(module, &import.path, asked)
                && let Some(found) = self.lookup(from, name, asked)
            {
                return Some(found);
            }
        }
        None
    }
}
