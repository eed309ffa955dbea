//! `answers.txt`: blocks separated by empty lines. Each has one or more questions, named by the row of docs/dns.md they
//! come from, and the one reply that all of them get; `#` starts a comment above a block.
//!
//! ```text
//! # The unnamed port counts too.
//! G23 web.shop.svc.cluster.local. SRV
//! status: NOERROR  flags: qr aa rd ra
//! ANSWER      web.shop.svc.cluster.local. 5 SRV 0 100 80 web.shop.svc.cluster.local.
//! ADDITIONAL  web.shop.svc.cluster.local. 5 A 10.96.10.3
//! ```
//! Questions are those of [`Question::parse`], replies those of [`Text`], with two lines of our own: `no reply`, and
//! `forwarded to 10.0.0.2`, the upstreams that were asked; without it none was.

use std::fmt::{self, Write as _};

use anyhow::{Context, Result, bail};

use crate::client::{Question, Text};

/// The content of one file.
#[derive(Debug)]
pub struct Answers {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Comment(String),
    Block(Block),
}

/// Questions that get the same reply.
#[derive(Debug)]
pub struct Block {
    /// The comment lines above the block.
    comments: Vec<String>,
    /// Row and question.
    pub questions: Vec<(String, Question)>,
    pub expected: Text,
    written: String,
}

impl Block {
    /// Whether nothing may come back.
    pub fn expects_silence(&self) -> bool {
        self.expected.status == "no reply"
    }
}

impl Answers {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the block that cannot be read and why.
    pub fn parse(text: &str) -> Result<Answers> {
        let mut parts = Vec::new();
        for part in text.split("\n\n").map(str::trim_end).filter(|part| !part.trim().is_empty()) {
            let lines: Vec<&str> = part.trim_start_matches('\n').lines().collect();
            if lines.iter().all(|line| line.starts_with('#')) {
                parts.push(Part::Comment(lines.join("\n")));
            } else {
                let block = block(&lines).with_context(|| format!("in the block\n{part}"))?;
                parts.push(Part::Block(block));
            }
        }
        Ok(Answers { parts })
    }

    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match part {
            Part::Block(block) => Some(block),
            Part::Comment(_) => None,
        })
    }

    /// Asks every question again and takes over what differs.
    pub(super) fn update(&mut self, mut ask: impl FnMut(&Question) -> Result<Text>) -> Result<()> {
        let mut parts = Vec::new();
        for part in self.parts.drain(..) {
            match part {
                Part::Block(block) => parts.extend(answered(block, &mut ask)?.map(Part::Block)),
                comment @ Part::Comment(_) => parts.push(comment),
            }
        }
        self.parts = parts;
        Ok(())
    }
}

/// A block with the replies that came: itself where they are as expected, else one block for each run of questions
/// that got the same.
fn answered(
    mut block: Block,
    ask: &mut impl FnMut(&Question) -> Result<Text>,
) -> Result<impl Iterator<Item = Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    for (row, question) in block.questions {
        let came = ask(&question)?;
        let as_written = came == block.expected;
        let (text, written) = if as_written {
            (block.expected.clone(), block.written.clone())
        } else {
            (came.clone(), came.to_string())
        };
        match blocks.last_mut() {
            Some(last) if came == last.expected => last.questions.push((row, question)),
            _ => blocks.push(Block {
                comments: std::mem::take(&mut block.comments),
                questions: vec![(row, question)],
                expected: text,
                written,
            }),
        }
    }
    Ok(blocks.into_iter())
}

fn block(lines: &[&str]) -> Result<Block> {
    let comments = lines.iter().take_while(|line| line.starts_with('#')).count();
    let (comments, lines) = lines.split_at(comments);
    let questions = lines.iter().take_while(|line| row(line).is_some()).count();
    let (questions, reply) = lines.split_at(questions);
    if questions.is_empty() || reply.is_empty() {
        bail!("a block has questions, such as `G12 cart.shop.svc.cluster.local. A`, and a reply");
    }
    Ok(Block {
        comments: comments.iter().map(|&line| line.to_owned()).collect(),
        questions: questions
            .iter()
            .filter_map(|line| row(line))
            .map(|(row, question)| Ok((row.to_owned(), Question::parse(question)?)))
            .collect::<Result<_>>()?,
        expected: Text::parse(reply),
        written: reply.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        }),
    })
}

/// `G12 question` in two.
fn row(line: &str) -> Option<(&str, &str)> {
    let (row, question) = line.split_once(' ')?;
    let number = row.strip_prefix('G')?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some((row, question))
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.parts.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            match part {
                Part::Comment(text) => writeln!(f, "{text}")?,
                Part::Block(block) => {
                    block.comments.iter().try_for_each(|line| writeln!(f, "{line}"))?;
                    for (row, question) in &block.questions {
                        writeln!(f, "{row} {}", question.text)?;
                    }
                    f.write_str(&block.written)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# About.

# One.
G1 a. A
G1 b. A
status: NOERROR  flags: qr
ANSWER  a. 5 A 192.0.2.1

G2 c. A
no reply
";

    #[test]
    fn a_file_is_written_as_it_was_read() {
        let mut answers = Answers::parse(FILE).unwrap();
        assert_eq!(answers.to_string(), FILE);
        assert_eq!(answers.blocks().map(|block| block.questions.len()).sum::<usize>(), 3);
        assert!(answers.blocks().last().unwrap().expects_silence());
        let as_expected: Vec<Text> =
            answers.blocks().flat_map(|b| vec![b.expected.clone(); b.questions.len()]).collect();
        let mut as_expected = as_expected.into_iter();
        answers.update(|_| Ok(as_expected.next().unwrap())).unwrap();
        assert_eq!(answers.to_string(), FILE);
    }

    #[test]
    fn an_update_changes_only_the_replies_that_differ() {
        let mut answers = Answers::parse(FILE).unwrap();
        let silence = Text::parse(&["no reply"]);
        let first = answers.blocks().next().unwrap().expected.clone();
        let reply = |question: &Question| {
            if question.text == "a. A" { first.clone() } else { silence.clone() }
        };
        answers.update(|question| Ok(reply(question))).unwrap();
        assert_eq!(
            answers.to_string(),
            FILE.replace("G1 b. A\n", "").replace("\nG2", "\nG1 b. A\nno reply\n\nG2")
        );
    }

    #[test]
    fn a_block_that_is_not_one_is_refused() {
        for wrong in ["G1 a. A\n", "status: NOERROR\n", "G1 a A\nno reply\n"] {
            assert!(Answers::parse(wrong).is_err(), "{wrong}");
        }
    }
}
