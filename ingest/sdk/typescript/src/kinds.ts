/**
 * What can happen to an answer, with the fields of each kind and their units, and one method for each.
 *
 * A test of the repository holds the table against the collector's own (`contracts/outcome.py`), so keep one kind to a line.
 */

/** Fields of each kind. Shares are 0 to 1. */
export interface Kinds {
  shown: {};
  replayed: {};
  accepted: { characters: number; whole?: boolean };
  rejected: {};
  dismissed: {};
  typed_through: { characters?: number | null };
  copied: { characters?: number | null };
  edited: { surviving: number };
  reverted: {};
  persisted: { after_s: number; surviving: number };
  committed: { surviving?: number | null };
  merged: { surviving?: number | null };
  follow_up: { text: string };
  thumbs: { up: boolean };
  tool_result: { tool: string; valid: boolean; error?: string | null };
  test_result: { passed: number | null; failed: number | null; error?: string | null };
  build_result: { ok: boolean; errors?: number | null };
  latency: { first_ms: number; last_ms?: number | null };
  error: { error: string };
  closed: {};
}

export type Kind = keyof Kinds;

/** The `turn_id` that the gateway gave with its answer, or the episode for what concerns all of it. */
export type Target = string | { readonly episode: string };

/** What may be said of any event besides its own fields. */
export interface About {
  /** When it happened; default: now. */
  readonly at?: Date;
  /** An id of your own. The same id counts once, however often it is told: `committed:${turn}:${commit}`. */
  readonly id?: string;
  /** Overrides the client's; false sends nothing but that something happened. */
  readonly consent?: boolean;
  readonly policy?: string;
}

/** Each method answers the event's id, or undefined when it was not taken in, which is counted. None throws. */
export abstract class Teller {
  /** An event of any kind. A kind that this version does not know yet needs a cast, and is kept by the collector. */
  abstract tell<K extends Kind>(kind: K, target: Target, data: Kinds[K], about?: About): string | undefined;

  /** The answer was on screen. */
  shown(target: Target, about?: About): string | undefined {
    return this.tell("shown", target, {}, about);
  }
  /** The same answer came on screen again; no further exposure. */
  replayed(target: Target, about?: About): string | undefined {
    return this.tell("replayed", target, {}, about);
  }
  /** Taken over: all of it, or (`whole` false) its first `characters`. */
  accepted(target: Target, data: Kinds["accepted"], about?: About): string | undefined {
    return this.tell("accepted", target, data, about);
  }
  /** Turned down on purpose. */
  rejected(target: Target, about?: About): string | undefined {
    return this.tell("rejected", target, {}, about);
  }
  /** It went away without a decision. */
  dismissed(target: Target, about?: About): string | undefined {
    return this.tell("dismissed", target, {}, about);
  }
  /** Not accepted, yet typed by hand: `characters` of it. */
  typedThrough(target: Target, data: Kinds["typed_through"] = {}, about?: About): string | undefined {
    return this.tell("typed_through", target, data, about);
  }
  /** Text of the answer went to the clipboard. */
  copied(target: Target, data: Kinds["copied"] = {}, about?: About): string | undefined {
    return this.tell("copied", target, data, about);
  }
  /** Accepted text was changed; `surviving` of its characters are still there. */
  edited(target: Target, data: Kinds["edited"], about?: About): string | undefined {
    return this.tell("edited", target, data, about);
  }
  /** Accepted text was taken out again. */
  reverted(target: Target, about?: About): string | undefined {
    return this.tell("reverted", target, {}, about);
  }
  /** A check `after_s` seconds after acceptance: `surviving` of the accepted text is still in the file. */
  persisted(target: Target, data: Kinds["persisted"], about?: About): string | undefined {
    return this.tell("persisted", target, data, about);
  }
  /** Accepted text is part of a commit. */
  committed(target: Target, data: Kinds["committed"] = {}, about?: About): string | undefined {
    return this.tell("committed", target, data, about);
  }
  /** Accepted text reached the main line. */
  merged(target: Target, data: Kinds["merged"] = {}, about?: About): string | undefined {
    return this.tell("merged", target, data, about);
  }
  /** What the person wrote next, in the same conversation. */
  followUp(target: Target, data: Kinds["follow_up"], about?: About): string | undefined {
    return this.tell("follow_up", target, data, about);
  }
  /** An explicit opinion; a later one replaces an earlier one. */
  thumbs(target: Target, data: Kinds["thumbs"], about?: About): string | undefined {
    return this.tell("thumbs", target, data, about);
  }
  /** A tool that the answer called. `valid` false: the call was malformed; `error`: the kind of failure. */
  toolResult(target: Target, data: Kinds["tool_result"], about?: About): string | undefined {
    return this.tell("tool_result", target, data, about);
  }
  /** Tests that ran on the changed code; both counts null and an `error` when they could not run. */
  testResult(target: Target, data: Kinds["test_result"], about?: About): string | undefined {
    return this.tell("test_result", target, data, about);
  }
  /** A compiler's or linter's verdict on the changed code. */
  buildResult(target: Target, data: Kinds["build_result"], about?: About): string | undefined {
    return this.tell("build_result", target, data, about);
  }
  /** Milliseconds that the person waited for the first characters, and for the last. */
  latency(target: Target, data: Kinds["latency"], about?: About): string | undefined {
    return this.tell("latency", target, data, about);
  }
  /** The answer could not be used: a time-out, a broken stream, an edit that does not apply. */
  error(target: Target, data: Kinds["error"], about?: About): string | undefined {
    return this.tell("error", target, data, about);
  }
  /** Nothing more is to be expected for this episode. */
  closed(target: Target, about?: About): string | undefined {
    return this.tell("closed", target, {}, about);
  }
}
