//! `list`: one page of failed records or dead letters, for people or as JSON.

use std::io::{self, Write};

use keylane::{RecordId, admin::Admin};

use super::{
    Answer,
    selection::{Filters, id},
    target::Target,
};

/// The size of the largest page. A page is held in memory, with its payloads.
const LARGEST: usize = 1_000;

/// The page, and its form.
#[derive(Debug, clap::Args)]
pub(crate) struct Page {
    #[command(flatten)]
    filters: Filters,
    /// The size of the page, 1 to 1000.
    #[arg(long, default_value_t = 100, value_parser = limit)]
    limit: usize,
    /// The last id of the page before: the page has higher ids only.
    #[arg(long, default_value_t = 0, value_parser = id)]
    after: RecordId,
    /// Prints a JSON object per line.
    #[arg(long)]
    json: bool,
    /// Shows payloads and headers, too. They can be personal data.
    #[arg(long)]
    payload: bool,
}

impl Page {
    /// Prints the page, and for people the beginning of the next one.
    pub(super) async fn print(self, admin: &Admin, target: Target) -> Answer {
        let page = target.page(admin, &self.filters.filter(), self.after, self.limit).await?;
        let next = page.last().filter(|_| page.len() == self.limit).map(|last| last.id);
        let mut out = io::stdout().lock();
        for listed in page {
            let listed = if self.payload { listed } else { listed.without_content() };
            match self.json {
                true => writeln!(out, "{}", serde_json::to_string(&listed)?)?,
                false => write!(out, "{listed}")?,
            }
        }
        if let Some(id) = next.filter(|_| !self.json) {
            writeln!(out, "there may be more: --after {id}")?;
        }
        Ok(())
    }
}

fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=LARGEST).contains(limit));
    limit.ok_or_else(|| format!("it must be 1 to {LARGEST}: read on from page to page with --after"))
}
