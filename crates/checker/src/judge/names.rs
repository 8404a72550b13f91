//! Keys, handlers and instances as numbers.

use std::{collections::HashMap, sync::Arc};

/// A name by its number.
pub(super) type Name = u32;

/// All names so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, Name>,
    texts: Vec<Arc<str>>,
}

impl Names {
    /// The number of a name, a new one if it was never seen.
    pub(super) fn of(&mut self, text: &str) -> Name {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let text: Arc<str> = text.into();
        let number = self.texts.len() as Name;
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The name with this number.
    pub(super) fn text(&self, name: Name) -> &str {
        self.texts.get(name as usize).map_or("", |text| text)
    }
}
