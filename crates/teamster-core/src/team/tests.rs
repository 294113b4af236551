use expect_test::expect;

use super::*;
use crate::Command as Any;
use crate::conversation::tests::team;
use crate::testing::check;
use crate::token::{self, NewToken};

#[test]
fn only_a_team_of_a_directory_where_a_hub_was_started_is_removed() {
    let eve = NewToken { kind: token::Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
    let create = Any::Token(token::Command::Create { new: eve, replace: false });
    let old = Team { is_implicit: true, ..team("old") };
    let teams = Any::Team(Command::Sync(vec![team("api"), old]));
    let remove = |name: &str, hub_directory: &str| {
        let (name, hub_directory) = (name.into(), hub_directory.into());
        Any::Team(Command::Remove { name, hub_directory })
    };
    let given = || vec![("hub", create.clone()), ("hub", teams.clone())];
    #[rustfmt::skip]
    let rows = [
        ("eve", "old", "/projects/api", expect![[r#"{"team":{"removed":{"name":"old"}}}"#]]),
        ("eve", "old", "/projects/old", expect!["refused: old is the directory of this hub; start the hub in another one first"]),
        ("eve", "api", "/projects/old", expect!["refused: there is no team api of a directory that a hub was started in"]),
        ("eve", "nix", "/projects/old", expect!["refused: there is no team nix of a directory that a hub was started in"]),
        ("ann", "old", "/projects/api", expect!["refused: teams are defined by configuration; ask the person who runs the hub"]),
    ];
    for (who, name, hub_directory, expected) in rows {
        check(given(), who, remove(name, hub_directory), expected);
    }
}
