/** A VS Code extension that completes code and tells Slipstream what people did with it. */

import { Client } from "@slipstream-rl/events";
import { FileSpool } from "@slipstream-rl/events/node";
import * as vscode from "vscode";
import { CHECKS_S, Stretch, survivingShare } from "./survival.js";

const GATEWAY = "http://127.0.0.1:8600";
const COLLECTOR = "http://127.0.0.1:8601";
const POLICY = "tab";
const EDIT_SETTLES_MS = 5_000;

/** The gateway answers as OpenAI does. Beside that, `slipstream` names the turn that every event is about, and its episode. */
interface Answer<Choice> {
  readonly choices: readonly [Choice];
  readonly slipstream: { readonly turn_id: string; readonly episode_id: string };
}

type Completion = Answer<{ readonly text: string }>;
type Chat = Answer<{ readonly message: { readonly content: string } }>;

/** One answer of the gateway, from the moment it is offered until somebody has decided. */
class Suggestion extends vscode.InlineCompletionItem {
  /** Characters of it that are in the document, typed or accepted. */
  done = 0;
  accepted = 0;
  shown = false;
  settled = false;

  constructor(
    readonly turn: string,
    readonly episode: string,
    readonly uri: string,
    readonly offset: number,
    readonly text: string,
  ) {
    super(text);
    this.command = { command: "slipstream.accepted", title: "", arguments: [this] };
  }
}

/** Accepted text, watched for ten minutes. */
interface Kept {
  readonly document: vscode.TextDocument;
  readonly stretch: Stretch;
  text: string;
  share: number;
  settling?: ReturnType<typeof setTimeout>;
}

let events: Client;
let current: Suggestion | undefined;
let lastTurn: string | undefined;
let exact = false;
const kept = new Map<string, Kept>();

export function activate(context: vscode.ExtensionContext): void {
  // With the proposed API the editor itself says what is shown and partly accepted; without it both are inferred below.
  exact = (context.extension.packageJSON.enabledApiProposals ?? []).includes("inlineCompletionsAdditions");
  events = new Client({
    url: COLLECTOR,
    policy: POLICY,
    source: `/vscode/${context.extension.packageJSON.version}`,
    key: () => context.secrets.get("slipstream.key"),
    spool: new FileSpool(context.globalStorageUri.fsPath, COLLECTOR),
    consent: consents(),
    onRefused: ({ reason, detail }) => console.warn(`slipstream: ${reason}: ${detail}`),
  });
  context.subscriptions.push(
    vscode.languages.registerInlineCompletionItemProvider({ pattern: "**" }, provider),
    vscode.commands.registerCommand("slipstream.accepted", accept),
    // package.json binds Escape to it "when": "inlineSuggestionVisible".
    vscode.commands.registerCommand("slipstream.reject", async () => {
      settle("rejected");
      await vscode.commands.executeCommand("editor.action.inlineSuggest.hide");
    }),
    vscode.commands.registerCommand("slipstream.copy", async (turn: string, text: string) => {
      await vscode.env.clipboard.writeText(text);
      events.copied(turn, { characters: text.length });
    }),
    vscode.commands.registerCommand("slipstream.thumbsUp", () => lastTurn && events.thumbs(lastTurn, { up: true })),
    vscode.commands.registerCommand("slipstream.thumbsDown", () => lastTurn && events.thumbs(lastTurn, { up: false })),
    vscode.workspace.onDidChangeTextDocument(changed),
    vscode.window.onDidChangeTextEditorSelection(moved),
    vscode.window.onDidChangeActiveTextEditor(() => settle("dismissed")),
    vscode.window.onDidChangeWindowState(({ focused }) => focused || settle("dismissed")),
    vscode.workspace.onDidChangeConfiguration(() => (events.consent = consents())),
    vscode.env.onDidChangeTelemetryEnabled(() => (events.consent = consents())),
    chat(),
  );
  void watchCommits(context);
}

export function deactivate(): Promise<boolean> {
  return events.close(); // sends what is left, and spools what cannot be sent, within two seconds
}

function consents(): boolean {
  return vscode.env.isTelemetryEnabled && vscode.workspace.getConfiguration("slipstream").get("learnFromMe", false);
}

// What is offered and shown -------------------------------------------------------------------------------------------------

const provider = {
  async provideInlineCompletionItems(
    document: vscode.TextDocument,
    position: vscode.Position,
    _context: vscode.InlineCompletionContext,
    token: vscode.CancellationToken,
  ): Promise<Suggestion[]> {
    const offset = document.offsetAt(position);
    if (current && !current.settled && current.uri === document.uri.toString() && offset === current.offset + current.done) {
      current.range = new vscode.Range(document.positionAt(current.offset), position);
      return [current]; // still the same exposure: nothing to tell
    }
    const began = performance.now();
    const prompt = document.getText(new vscode.Range(document.positionAt(Math.max(0, offset - 4_000)), position));
    const answer = await ask<Completion>("/v1/completions", { model: POLICY, prompt }, token);
    if (!answer?.choices[0].text || token.isCancellationRequested) return []; // never on screen: not shown
    const { turn_id, episode_id } = answer.slipstream;
    events.latency(turn_id, { first_ms: performance.now() - began });
    settle("dismissed"); // another takes its place
    const fresh = new Suggestion(turn_id, episode_id, document.uri.toString(), offset, answer.choices[0].text);
    current = fresh;
    if (!exact) setTimeout(() => fresh.settled || provider.handleDidShowCompletionItem(fresh), 50);
    return [fresh];
  },

  handleDidShowCompletionItem(item: Suggestion): void {
    if (item.shown) {
      if (item.settled) events.replayed(item.turn); // it came back; still one exposure
      return;
    }
    item.shown = true;
    lastTurn = item.turn;
    events.shown(item.turn);
  },

  handleDidPartiallyAcceptCompletionItem(item: Suggestion, info: number | { acceptedLength: number }): void {
    acceptPart(item, typeof info === "number" ? info : info.acceptedLength);
  },
};

// How it ends ---------------------------------------------------------------------------------------------------------------

function accept(item: Suggestion): void {
  item.settled = true;
  events.accepted(item.turn, { characters: item.text.length });
  keep(item, item.text.length);
}

function acceptPart(item: Suggestion, characters: number): void {
  item.accepted = Math.max(item.accepted, characters);
  events.accepted(item.turn, { characters: item.accepted, whole: item.accepted >= item.text.length });
  keep(item, item.accepted);
}

/** Once, and only for what was on screen. Typing it by hand is neither a rejection nor an acceptance. */
function settle(how: "rejected" | "dismissed"): void {
  const item = current;
  current = undefined;
  if (!item || item.settled) return;
  item.settled = true;
  if (!item.shown || item.accepted > 0) return;
  if (item.done > 0) events.typedThrough(item.turn, { characters: item.done });
  else if (how === "rejected") events.rejected(item.turn);
  else events.dismissed(item.turn);
}

function changed({ document, contentChanges, reason }: vscode.TextDocumentChangeEvent): void {
  for (const change of contentChanges) {
    for (const [turn, one] of kept) {
      if (one.document !== document || !one.stretch.apply(change)) continue;
      clearTimeout(one.settling);
      const undone = reason === vscode.TextDocumentChangeReason.Undo;
      one.settling = setTimeout(() => tellEdit(turn, one), undone ? 0 : EDIT_SETTLES_MS);
    }
    follow(document, change); // last: what it begins to watch has this change in it already
  }
}

/** Is this change the next piece of the suggestion? */
function follow(document: vscode.TextDocument, change: vscode.TextDocumentContentChangeEvent): void {
  const item = current;
  if (!item || item.settled || item.uri !== document.uri.toString()) return;
  const from = change.rangeOffset - item.offset;
  const expected = from >= 0 && change.rangeOffset + change.rangeLength === item.offset + item.done;
  if (!expected || !item.text.startsWith(change.text, from)) return settle("dismissed");
  const piece = from + change.text.length - item.done;
  item.done += piece;
  // Typing comes a character at a time. More at once, but not all, is "accept next word" or "accept next line".
  if (!exact && piece > 1 && item.done < item.text.length) acceptPart(item, item.done);
  // All of it: if it was accepted, its command runs in a moment and settles it first.
  if (item.done === item.text.length) setTimeout(() => current === item && settle("dismissed"), 100);
}

function moved({ textEditor, selections, kind }: vscode.TextEditorSelectionChangeEvent): void {
  if (!current || kind === undefined || textEditor.document.uri.toString() !== current.uri) return;
  const cursor = textEditor.document.offsetAt(selections[0]!.active);
  if (cursor !== current.offset + current.done) settle("dismissed");
}

// What becomes of it ---------------------------------------------------------------------------------------------------------

function keep(item: Suggestion, characters: number): void {
  const document = vscode.workspace.textDocuments.find((one) => one.uri.toString() === item.uri);
  if (!document) return;
  const text = item.text.slice(0, characters);
  const known = kept.get(item.turn);
  const stretch = new Stretch(item.offset, item.offset + text.length);
  kept.set(item.turn, { document, stretch, text, share: 1 });
  if (known) return; // more of the same answer: its checks are under way
  for (const after_s of CHECKS_S) {
    setTimeout(() => {
      const one = kept.get(item.turn);
      if (one && !one.document.isClosed) events.persisted(item.turn, { after_s, surviving: shareOf(one) });
      if (after_s !== CHECKS_S[CHECKS_S.length - 1]) return;
      kept.delete(item.turn);
      events.closed({ episode: item.episode });
    }, after_s * 1_000);
  }
}

function shareOf({ document, stretch, text }: Kept): number {
  const range = new vscode.Range(document.positionAt(stretch.start), document.positionAt(stretch.end));
  return survivingShare(text, document.getText(range));
}

function tellEdit(turn: string, one: Kept): void {
  if (one.document.isClosed || kept.get(turn) !== one) return;
  const share = shareOf(one);
  if (share === one.share) return;
  one.share = share;
  if (share === 0) events.reverted(turn);
  else events.edited(turn, { surviving: share });
}

interface Repository {
  readonly rootUri: vscode.Uri;
  readonly state: { readonly HEAD?: { readonly commit?: string }; readonly onDidChange: vscode.Event<void> };
}

interface Git {
  readonly repositories: readonly Repository[];
  readonly onDidOpenRepository: vscode.Event<Repository>;
}

async function watchCommits(context: vscode.ExtensionContext): Promise<void> {
  const git = (await vscode.extensions.getExtension("vscode.git")?.activate())?.getAPI(1) as Git | undefined;
  const watch = ({ rootUri, state }: Repository): void => {
    let head = state.HEAD?.commit;
    const look = (): void => {
      if (state.HEAD?.commit === head) return;
      head = state.HEAD?.commit;
      for (const [turn, one] of kept) {
        const inside = one.document.uri.toString().startsWith(`${rootUri.toString()}/`);
        if (!inside || one.document.isDirty || one.document.isClosed) continue;
        events.committed(turn, { surviving: shareOf(one) }, { id: `committed:${turn}:${head}` }); // however often git says so
      }
    };
    context.subscriptions.push(state.onDidChange(look));
  };
  git?.repositories.forEach(watch);
  if (git) context.subscriptions.push(git.onDidOpenRepository(watch));
}

// Chat ------------------------------------------------------------------------------------------------------------------------

/** What stays with a message of the chat; nothing with one that failed. */
type Told = { readonly turn: string; readonly episode: string } | undefined;

function chat(): vscode.Disposable {
  const participant = vscode.chat.createChatParticipant("slipstream.chat", async (request, history, stream, token) => {
    const before = history.history.filter((one) => one instanceof vscode.ChatResponseTurn).at(-1)?.result.metadata as Told;
    if (before) events.followUp(before.turn, { text: request.prompt }); // what was said next, about the answer before
    const headers = before ? { "x-episode-id": before.episode, "x-parent-turn-id": before.turn } : {};
    const body = { model: POLICY, messages: [{ role: "user", content: request.prompt }] };
    const answer = await ask<Chat>("/v1/chat/completions", body, token, headers);
    if (!answer) return {};
    const text = answer.choices[0].message.content;
    const { turn_id, episode_id } = answer.slipstream;
    stream.markdown(text);
    stream.button({ command: "slipstream.copy", title: "Copy", arguments: [turn_id, text] });
    events.shown(turn_id);
    return { metadata: { turn: turn_id, episode: episode_id } satisfies Told };
  });
  participant.onDidReceiveFeedback(({ result, kind }) => {
    const told = result.metadata as Told;
    if (told) events.thumbs(told.turn, { up: kind === vscode.ChatResultFeedbackKind.Helpful });
  });
  return participant;
}

async function ask<Reply extends Completion | Chat>(
  path: string,
  body: object,
  token: vscode.CancellationToken,
  more: Record<string, string> = {},
): Promise<Reply | undefined> {
  const abort = new AbortController();
  token.onCancellationRequested(() => abort.abort());
  const subject = vscode.env.machineId; // stored as a keyed hash only
  const headers = { "content-type": "application/json", "x-consent": String(events.consent), "x-subject": subject, ...more };
  try {
    const answer = await fetch(GATEWAY + path, { method: "POST", headers, body: JSON.stringify(body), signal: abort.signal });
    return answer.ok ? ((await answer.json()) as Reply) : undefined;
  } catch {
    return undefined;
  }
}
