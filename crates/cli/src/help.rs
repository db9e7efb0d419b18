//! The help of the whole program: its commands in groups, since clap lists them as one.

use std::fmt::Write as _;

use clap::{Command, builder::StyledStr};

/// The commands by whom they are for.
const GROUPS: [(&str, &[&str]); 2] = [
    ("Commands", &["generate", "live", "image", "models", "info", "doctor", "completions", "help"]),
    ("For those who write kernels", &["lab", "sim", "profile", "bench", "kernels", "demo-model"]),
];

/// The width of the commands' names.
const NAME: usize = 13;

/// The command with its subcommands listed in groups.
pub fn grouped(command: Command) -> Command {
    let command = built(command);
    let template = template(&command);
    command.help_template(template)
}

/// clap adds the command `help` when it builds the others.
fn built(mut command: Command) -> Command {
    command.build();
    command
}

fn template(command: &Command) -> StyledStr {
    let heading = command.get_styles().get_header();
    let name = command.get_styles().get_literal();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{heading}{title}:{heading:#}");
        for subcommand in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name}{:<NAME$}{name:#}{about}", subcommand.get_name());
        }
        text.push('\n');
    }
    let _ = write!(text, "{heading}Options:{heading:#}\n{{options}}{{after-help}}");
    text.into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn every_command_is_in_one_group() {
        let command = built(Arguments::command());
        for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let name = subcommand.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
        }
    }

    /// Every help, short and long, of every command and its own commands.
    fn all_helps(command: &Command, path: &str, each: &mut impl FnMut(&str, &str)) {
        let mut sized = command.clone().term_width(WIDTH);
        each(path, &sized.render_help().to_string());
        each(path, &sized.render_long_help().to_string());
        for subcommand in command.get_subcommands() {
            all_helps(subcommand, &format!("{path} {}", subcommand.get_name()), each);
        }
    }

    const WIDTH: usize = 80;

    #[test]
    fn no_help_is_wider_than_a_terminal() {
        let mut too_wide = Vec::new();
        all_helps(&grouped(Arguments::command()), "kinora", &mut |path, help| {
            let wide = help.lines().filter(|line| line.chars().count() > WIDTH);
            too_wide.extend(wide.map(|line| format!("{path}: {line}")));
        });
        assert!(too_wide.is_empty(), "{too_wide:#?}");
    }

    /// clap would break the lines of examples wherever they end.
    #[test]
    fn examples_are_written_for_a_terminal() {
        fn check(command: &Command, too_wide: &mut Vec<String>) {
            for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
                let text = text.to_string();
                let wide = text.lines().filter(|line| line.chars().count() > WIDTH);
                too_wide.extend(wide.map(|line| format!("{}: {line}", command.get_name())));
            }
            command.get_subcommands().for_each(|subcommand| check(subcommand, too_wide));
        }
        let mut too_wide = Vec::new();
        check(&Arguments::command(), &mut too_wide);
        assert!(too_wide.is_empty(), "{too_wide:#?}");
    }
}
