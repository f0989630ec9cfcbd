//! serde's view of the tree.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::super::document::{Node, Value};
use super::super::place::Place;
use super::error::DecodeError;
use super::{Session, join};

/// Reads one value.
pub(super) struct Reader<'a> {
    node: &'a Node,
    path: String,
    session: &'a Session,
}

type Entry = (String, Place, Node);

impl<'a> Reader<'a> {
    pub(super) fn new(node: &'a Node, path: String, session: &'a Session) -> Self {
        Self { node, path, session }
    }

    fn wrong(&self, expected: &str, help: &str) -> DecodeError {
        let error = DecodeError::invalid_type(self.unexpected(), &expected);
        match error.fault {
            super::Fault::Other { message, .. } => DecodeError::new(message, help),
            super::Fault::Missing(_) => error,
        }
        .at(&self.path, &self.node.place)
    }

    fn unexpected(&self) -> Unexpected<'_> {
        match &self.node.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Unsigned(value) => Unexpected::Unsigned(*value),
            Value::Signed(value) => Unexpected::Signed(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::Text(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        }
    }

    /// Errors that nobody placed are about this value.
    fn placed<T>(
        self,
        read: impl FnOnce(&'a Value, &str, &'a Session) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        read(&self.node.value, &self.path, self.session)
            .map_err(|error| error.at(&self.path, &self.node.place))
    }

    fn number<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Unsigned(_) | Value::Signed(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("a whole number", "")),
        }
    }

    fn fraction<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("a number", "")),
        }
    }

    fn text<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Text(_) => self.deserialize_any(visitor),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) => {
                Err(self.wrong("a text", "put it in quotes"))
            }
            Value::Null | Value::List(_) | Value::Map(_) => Err(self.wrong("a text", "")),
        }
    }

    fn list<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::List(_) => self.deserialize_any(visitor),
            // A key whose entries are all commented out.
            Value::Null => self.placed(|_, path, session| visitor.visit_seq(Items::new(&[], path, session))),
            _ => Err(self.wrong("a list", "begin each entry on a line of its own with `- `")),
        }
    }

    fn map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Map(_) => self.deserialize_any(visitor),
            Value::Null => {
                self.placed(|_, path, session| visitor.visit_map(Entries::new(&[], path, session)))
            }
            _ => Err(self.wrong("keys with values", "write `key: value` on lines of their own")),
        }
    }
}

/// Reads `$method` by the checking method that follows.
macro_rules! read_by {
    ($($method:ident => $by:ident),* $(,)?) => {
        $(fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            self.$by(visitor)
        })*
    };
}

impl<'a> Deserializer<'a> for Reader<'a> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.placed(|value, path, session| match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items::new(items, path, session)),
            Value::Map(entries) => visitor.visit_map(Entries::new(entries, path, session)),
        })
    }

    read_by! {
        deserialize_i8 => number, deserialize_i16 => number, deserialize_i32 => number, deserialize_i64 => number,
        deserialize_i128 => number, deserialize_u8 => number, deserialize_u16 => number, deserialize_u32 => number,
        deserialize_u64 => number, deserialize_u128 => number, deserialize_f32 => fraction,
        deserialize_f64 => fraction, deserialize_char => text, deserialize_str => text, deserialize_string => text,
        deserialize_seq => list, deserialize_map => map,
        deserialize_bytes => deserialize_any,
        deserialize_byte_buf => deserialize_any,
        deserialize_unit => deserialize_any,
        deserialize_identifier => deserialize_any,
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Bool(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong("`true` or `false`", "")),
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let (path, node) = (self.path.clone(), self.node);
        visitor
            .visit_newtype_struct(self)
            .map_err(|error: DecodeError| error.at(&path, &node.place))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.list(visitor)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if let Value::Map(entries) = &self.node.value {
            for (key, place, _) in entries {
                let path = join(&self.path, key);
                if !fields.contains(&key.as_str()) && !self.session.is_dropped(&path) {
                    self.session
                        .unknown_key(&self.path, path, place.clone(), key, fields);
                }
            }
        }
        self.map(visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match &self.node.value {
            Value::Text(_) | Value::Map(_) => {
                let choice = Choice {
                    node: self.node,
                    path: self.path.clone(),
                    session: self.session,
                };
                self.placed(|_, _, _| visitor.visit_enum(choice))
            }
            _ => Err(self.wrong("a text, or one key with values", "")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }
}

/// The elements of a list that are not dropped.
struct Items<'a> {
    rest: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    path: String,
    session: &'a Session,
}

impl<'a> Items<'a> {
    fn new(items: &'a [Node], path: &str, session: &'a Session) -> Self {
        Self {
            rest: items.iter().enumerate(),
            path: path.to_owned(),
            session,
        }
    }
}

impl<'a> SeqAccess<'a> for Items<'a> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        for (index, node) in self.rest.by_ref() {
            let path = format!("{}[{index}]", self.path);
            if self.session.is_dropped(&path) {
                continue;
            }
            let reader = Reader::new(node, path.clone(), self.session);
            return seed
                .deserialize(reader)
                .map(Some)
                .map_err(|error| error.at(&path, &node.place));
        }
        Ok(None)
    }
}

/// The entries of a map that are not dropped.
struct Entries<'a> {
    rest: std::slice::Iter<'a, Entry>,
    path: String,
    session: &'a Session,
    value: Option<(String, &'a Node)>,
}

impl<'a> Entries<'a> {
    fn new(entries: &'a [Entry], path: &str, session: &'a Session) -> Self {
        Self {
            rest: entries.iter(),
            path: path.to_owned(),
            session,
            value: None,
        }
    }
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        for (key, place, node) in self.rest.by_ref() {
            let path = join(&self.path, key);
            if self.session.is_dropped(&path) {
                continue;
            }
            let reader: StrDeserializer<'_, DecodeError> = key.as_str().into_deserializer();
            self.value = Some((path.clone(), node));
            return seed
                .deserialize(reader)
                .map(Some)
                .map_err(|error| error.at(&path, place));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some((path, node)) = self.value.take() else {
            return Err(DecodeError::new("a value was read before its key", ""));
        };
        let reader = Reader::new(node, path.clone(), self.session);
        seed.deserialize(reader)
            .map_err(|error| error.at(&path, &node.place))
    }
}

/// One of several: a text, or a map of one key.
struct Choice<'a> {
    node: &'a Node,
    path: String,
    session: &'a Session,
}

impl<'a> EnumAccess<'a> for Choice<'a> {
    type Error = DecodeError;
    type Variant = Chosen<'a>;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Chosen<'a>), DecodeError> {
        let (name, place, content) = match &self.node.value {
            Value::Text(name) => (name, &self.node.place, None),
            Value::Map(entries) => match entries.as_slice() {
                [(name, place, node)] => (name, place, Some(node)),
                _ => {
                    return Err(DecodeError::new(
                        "expected exactly one key",
                        "keep the one that is meant",
                    ));
                }
            },
            _ => return Err(DecodeError::new("expected a text, or one key with values", "")),
        };
        let reader: StrDeserializer<'_, DecodeError> = name.as_str().into_deserializer();
        let variant = seed
            .deserialize(reader)
            .map_err(|error| error.at(&self.path, place))?;
        let content = content.map(|node| Reader::new(node, join(&self.path, name), self.session));
        Ok((variant, Chosen(content)))
    }
}

/// What comes with the choice.
struct Chosen<'a>(Option<Reader<'a>>);

impl<'a> Chosen<'a> {
    fn content(self) -> Result<Reader<'a>, DecodeError> {
        self.0
            .ok_or_else(|| DecodeError::new("expected keys with values behind this choice", ""))
    }
}

impl<'a> VariantAccess<'a> for Chosen<'a> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        match self.0 {
            None => Ok(()),
            Some(reader) if reader.node.value == Value::Null => Ok(()),
            Some(reader) => Err(reader.wrong("nothing behind this choice", "remove it")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, DecodeError> {
        let reader = self.content()?;
        let (path, node) = (reader.path.clone(), reader.node);
        seed.deserialize(reader)
            .map_err(|error| error.at(&path, &node.place))
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.content()?.list(visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}
