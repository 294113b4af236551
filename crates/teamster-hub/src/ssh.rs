//! How a machine is named in the settings: the command line of `ssh`, read without a shell.

/// Options of `ssh` that are followed by a value.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOoPpQRSWw";
/// Options with which `ssh` would not run what it is told, or not talk to us.
const NOT_OURS: &str = "fGMNnOQsTtVW";

/// What `ssh` is told about a machine: its own arguments, the last of which is the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ssh {
    pub(crate) options: Vec<String>,
    pub(crate) host: String,
}

impl Ssh {
    /// Reads `ssh -p 2222 ann@box`; the first word may be left out. There is no shell, so there are no quotes.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.first() == Some(&"ssh") {
            words.remove(0);
        }
        if text.chars().any(|c| c.is_control()) {
            return Err("it has control characters".to_owned());
        }
        let mut n_options = 0;
        while let Some(letters) = words.get(n_options).and_then(|word| word.strip_prefix('-')) {
            n_options += 1;
            let own = letters.find(|c| NOT_OURS.contains(c));
            let valued = letters.find(|c| WITH_VALUE.contains(c));
            match (own, valued) {
                (Some(own), valued) if valued.is_none_or(|valued| own <= valued) => {
                    return Err(format!("ssh cannot be told -{letters} here"));
                }
                (_, Some(at)) if at + 1 == letters.len() => n_options += 1,
                _ => {}
            }
        }
        match words.get(n_options..) {
            Some([host]) if !host.is_empty() => Ok(Self {
                options: words[..n_options].iter().map(|word| (*word).to_owned()).collect(),
                host: (*host).to_owned(),
            }),
            Some([_, ..]) => Err("there is something after the host".to_owned()),
            _ => Err("it names no host".to_owned()),
        }
    }

    /// Returns what a person can try.
    pub(crate) fn shown(&self) -> String {
        let words = self.options.iter().map(String::as_str).chain([self.host.as_str(), "true"]);
        format!("ssh {}", words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_is_told_options_and_a_host_and_nothing_else() {
        for (text, options, host) in [
            ("box", &[][..], "box"),
            ("ssh box", &[], "box"),
            ("  ssh  -p 2222  -4 ann@box ", &["-p", "2222", "-4"], "ann@box"),
            ("-F/etc/x -vi key box", &["-F/etc/x", "-vi", "key"], "box"),
            ("-o ProxyJump=a,b box", &["-o", "ProxyJump=a,b"], "box"),
            // What follows a letter that has a value is the value.
            ("-lNancy box", &["-lNancy"], "box"),
            ("ssh ssh", &[], "ssh"),
        ] {
            let options = options.iter().map(|word| (*word).to_owned()).collect();
            let expected = Ssh { options, host: host.to_owned() };
            assert_eq!(Ssh::parse(text), Ok(expected), "{text}");
        }
        for (text, why) in [
            ("", "it names no host"),
            ("ssh", "it names no host"),
            ("ssh -p 2222", "it names no host"),
            ("ssh -p", "it names no host"),
            ("box reboot", "there is something after the host"),
            ("box -p 22", "there is something after the host"),
            ("-N box", "ssh cannot be told -N here"),
            ("-vN box", "ssh cannot be told -vN here"),
            ("-W x:1 box", "ssh cannot be told -W here"),
            ("bo\u{7}x", "it has control characters"),
            ("box\nx", "it has control characters"),
        ] {
            assert_eq!(Ssh::parse(text), Err(why.to_owned()), "{text:?}");
        }
    }
}
