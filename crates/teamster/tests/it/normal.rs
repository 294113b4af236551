//! Makes what differs from run to run the same, so that whole texts can be compared.

/// Replaces every text of a shape, in which `0` stands for a digit and `f` for a hexadecimal one.
pub(crate) fn mask(text: &str, shape: &str, with: &str) -> String {
    let fits = |at: &str| {
        let mut letters = at.chars();
        shape.chars().all(|wanted| {
            letters.next().is_some_and(|letter| match wanted {
                '0' => letter.is_ascii_digit(),
                'f' => matches!(letter, '0'..='9' | 'a'..='f'),
                _ => letter == wanted,
            })
        })
    };
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let n_bytes = if fits(rest) { shape.len() } else { first.len_utf8() };
        masked += if fits(rest) { with } else { &rest[..n_bytes] };
        rest = &rest[n_bytes..];
    }
    masked
}

/// The ids of yaks in the order in which they appeared: the first is called `yak-1`.
#[derive(Default)]
pub(crate) struct Yaks(Vec<String>);

impl Yaks {
    /// What ids begin with: the hub of a test is started in the directory for temporary files.
    const PREFIX: &str = "tmp-";

    /// Replaces ids by names.
    pub(crate) fn names(&mut self, text: &str) -> String {
        let mut named = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(Self::PREFIX) {
            let (before, at) = rest.split_at(start);
            named += before;
            let digits = at[Self::PREFIX.len()..].bytes().take(4);
            let is_id = digits.filter(u8::is_ascii_hexdigit).count() == 4;
            let (id, after) = at.split_at(Self::PREFIX.len() + if is_id { 4 } else { 0 });
            rest = after;
            if !is_id {
                named += id;
                continue;
            }
            let known = self.0.iter().position(|known| known == id);
            let number = known.unwrap_or_else(|| {
                self.0.push(id.to_owned());
                self.0.len() - 1
            });
            named += "yak-";
            named += &(number + 1).to_string();
        }
        named + rest
    }

    /// Replaces names by ids, also those in capitals.
    pub(crate) fn ids(&self, text: &str) -> String {
        // From the last, so that `yak-1` is not taken for the beginning of `yak-12`.
        let names = self.0.iter().enumerate().rev();
        names.fold(text.to_owned(), |text, (i, id)| {
            let name = format!("yak-{}", i + 1);
            text.replace(&name, id).replace(&name.to_uppercase(), &id.to_uppercase())
        })
    }
}
