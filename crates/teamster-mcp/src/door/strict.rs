//! JSON read strictly: no key twice in one object, and a bounded number of values.
//!
//! Two readers of the same text may each take another one of two equal keys, so that what was checked is not what is
//! done. And a few bytes of JSON (`[[],[],…`) can become a hundred times as many in memory.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// Maximum number of values in one message. Real messages have a few hundred.
pub(super) const VALUES_MAX: u32 = 100_000;

/// Reads a whole text.
pub(super) fn read(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let left = Cell::new(VALUES_MAX);
    let value = Strict { left: &left }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads an object that is part of a message. It may have half as many values as a whole message, so that two of them
/// are never more than [`read`] accepts.
pub(super) fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let left = Cell::new(VALUES_MAX / 2 - 10);
    from.deserialize_map(Object(Strict { left: &left }))
}

/// Reads an object or `null`.
pub(super) fn optional_object<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Map<String, Value>>, D::Error> {
    struct Optional;

    impl<'de> Visitor<'de> for Optional {
        type Value = Option<Map<String, Value>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object or null")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            object(from).map(Some)
        }
    }

    from.deserialize_option(Optional)
}

/// Reads any value as [`Value`] does, but strictly.
#[derive(Clone, Copy)]
struct Strict<'a> {
    /// How many more values there may be.
    left: &'a Cell<u32>,
}

impl Strict<'_> {
    fn count<E: Error>(self) -> Result<(), E> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom(format_args!(
                "more than {VALUES_MAX} values; send fewer in one request"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.count()?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(value) = values.next_element_seed(self)? {
            array.push(value);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        Object(self).visit_map(members).map(Value::Object)
    }
}

/// Reads an object and nothing else.
struct Object<'a>(Strict<'a>);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match object.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(members.next_value_seed(self.0)?);
                }
                Entry::Occupied(twice) => {
                    let shown: String = twice.key().chars().take(80).collect();
                    return Err(A::Error::custom(format_args!(
                        "the key {shown:?} is there twice; send it once"
                    )));
                }
            }
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_refused_at_any_depth_and_all_else_is_read_as_it_is() {
        for (text, key) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"x":{"b":[{"c":1},{"c":1,"d":2,"c":3}]}}"#, "c"),
            (r#"{"\u0061":1,"a":2}"#, "a"),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the key {key:?} is there twice")), "{error}");
        }
        for text in [
            r#"{"a":{"a":{"a":[{"a":1},{"a":2}]}},"b":null,"c":[true,-1,1.5,18446744073709551615]}"#,
            r#"[]"#,
            r#""x\u00e9""#,
            "-0",
            "1e300",
            " {} ",
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()).unwrap(), plain, "{text}");
        }
        for text in ["", "{", "[1,]", "{} {}", "nul", "1e400"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let array = |n: u32| format!("[{}1]", "1,".repeat(n as usize - 1));
        assert!(read(array(VALUES_MAX - 1).as_bytes()).is_ok());
        let error = read(array(VALUES_MAX).as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("more than 100000 values"), "{error}");
    }
}
