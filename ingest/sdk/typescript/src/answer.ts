/**
 * What the collector's answer to a request means for the events in it.
 *
 * An answer that nobody understands (a hotel's login page with status 200, say) means that the events are to be sent again.
 */

export const LONGEST_WAIT_MS = 3_600_000;

export interface Fate {
  readonly taken: boolean;
  readonly code: number;
  readonly reason: string;
  readonly detail: string;
}

/**
 * `settled`: each event has its fate. `again`: later, all of them. `denied`: not with this key or to this address; a few more times,
 * far apart. `broken`: the collector fails on them; a few more times, then in halves, to find the one it fails on. `split`: too much
 * at once, in halves. `plain`: at once, without compression. `hopeless`: never.
 */
export type Then = "settled" | "again" | "denied" | "broken" | "split" | "plain" | "hopeless";

export interface Verdict {
  readonly then: Then;
  readonly fault: string;
  readonly fates?: readonly Fate[];
  readonly waitMs?: number | undefined;
}

export function judge(status: number, retryAfter: string | null, body: string, sent: number, now = Date.now()): Verdict {
  const fault = `HTTP ${status}`;
  const waitMs = waitOf(retryAfter, now);
  switch (status) {
    case 200:
    case 202:
    case 207: {
      const fates = fatesOf(body);
      if (fates?.length !== sent) return { then: "again", fault: `${fault} from something that is no collector` };
      return { then: "settled", fault, fates };
    }
    case 401:
    case 403:
    case 404:
    case 405:
    case 407:
      return { then: "denied", fault, waitMs };
    case 408:
    case 425:
    case 429:
      return { then: "again", fault, waitMs };
    case 413:
      return { then: "split", fault };
    case 415:
      return { then: "plain", fault };
    case 500:
      return { then: "broken", fault };
    default:
      return { then: status > 500 || status < 400 ? "again" : "hopeless", fault, waitMs };
  }
}

function fatesOf(body: string): Fate[] | undefined {
  try {
    const { results } = JSON.parse(body) as { results: Record<string, unknown>[] };
    return results.map((one) => ({
      taken: one["status"] === "taken",
      code: Number(one["code"] ?? 0) || 0,
      reason: String(one["reason"] ?? ""),
      detail: String(one["detail"] ?? ""),
    }));
  } catch {
    return undefined;
  }
}

/** Seconds or an HTTP date, at most an hour; undefined where there is none to be understood. */
function waitOf(retryAfter: string | null, now: number): number | undefined {
  if (!retryAfter) return undefined;
  const seconds = Number(retryAfter);
  const waitMs = Number.isNaN(seconds) ? Date.parse(retryAfter) - now : seconds * 1_000;
  return Number.isNaN(waitMs) ? undefined : Math.min(Math.max(waitMs, 0), LONGEST_WAIT_MS);
}
