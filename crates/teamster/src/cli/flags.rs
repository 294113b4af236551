//! The API names the fields of requests; you type flags.

use teamster_api::ApiError;

/// Shows an error, with the fields that it names as the flags that set them.
pub(super) fn in_flags(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match error.chain().find_map(|one| one.downcast_ref::<ApiError>()) {
        Some(refused) => refused.in_words_of(&text, flag),
        None => text,
    }
}

fn flag(field: &str) -> String {
    match field {
        "commits" => "--no-commit".to_owned(),
        "directory" => "--dir".to_owned(),
        "expires_in_s" => "--for".to_owned(),
        "grants" => "--grant".to_owned(),
        "microdollars" => "--budget".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use teamster_api::Code;

    use super::*;

    #[test]
    fn a_refusal_names_flags_also_under_a_context() {
        let refused = ApiError::new(
            Code::Refused,
            "choose another `name`, or more `microdollars`; see `name-x`",
        )
        .with_field("name")
        .with_field("microdollars");
        let error = Err::<(), _>(refused).context("cannot begin").unwrap_err();
        assert_eq!(
            in_flags(&error),
            "cannot begin: choose another --name, or more --budget; see `name-x`"
        );
        assert_eq!(in_flags(&anyhow::anyhow!("no `name`")), "no `name`");
    }
}
