(** The bound on what travels for a sum, and a protocol that attains it. Beyond the paper. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Messages.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Bound.
Variables (D : finType) (p : nat) (V : Type) (holds : D -> {set 'I_p}).
Local Notation message := (message D V).
Local Notation state := (D -> {set 'I_p}).
Implicit Types (ms : seq message) (h : state) (d t : D) (T : {set D}).

(** *** Whom a device has heard of: the summands on which what it knows can depend *)

Definition hear h (m : message) : state := fun d => if d == receiver m then h d :|: h (sender m) else h d.
Definition heard ms : state := foldl hear holds ms.

Lemma unheard_unknown ms (x y : 'I_p -> V) s d :
  (forall k, k != s -> x k = y k) -> s \notin heard ms d -> knows holds ms x d = knows holds ms y d.
Proof.
move=> xy; rewrite /heard /knows.
have: forall d, s \notin holds d -> own holds x d = own holds y d.
  move=> e se; apply/eq_in_map => k; rewrite mem_enum => ke; apply: xy.
  by apply: contraNneq se => <-.
elim: ms holds (own holds x) (own holds y) => [|m ms IH] h kx ky H //=; first exact: H.
apply: IH => e; rewrite /hear /tell; case: eqP => [->|_]; last exact: H.
by rewrite inE negb_or => /andP[/H -> /H ->].
Qed.

Lemma tells_heard ms (f : ('I_p -> V) -> V) t : minds f -> tells holds ms f t -> heard ms t = setT.
Proof.
move=> M [answer A]; apply/setP => s; rewrite in_setT; apply/negbNE/negP => st.
have [x [y [xy ne]]] := M s; apply: ne; rewrite -!A.
by rewrite (unheard_unknown xy st).
Qed.

(** *** Counting *)

Hypothesis one : forall d, #|holds d| <= 1.

(** The summands that have left the devices that held them. *)
Definition out h : {set 'I_p} := \bigcup_d (h d :\: holds d).

Lemma heard_rcons ms m : heard (rcons ms m) = hear (heard ms) m.
Proof. by rewrite /heard -cats1 foldl_cat. Qed.

Lemma out_size ms : #|out (heard ms)| <= size ms.
Proof.
elim/last_ind: ms => [|ms m IH].
  rewrite /out /heard /= (eq_bigr (fun _ => set0)) => [|d _]; last by rewrite setDv.
  by rewrite big1_eq cards0.
rewrite size_rcons heard_rcons; set h := heard ms in IH *.
have sub: out (hear h m) \subset out h :|: holds (sender m).
  apply/subsetP => s /bigcupP[d _]; rewrite inE => /andP[nd].
  have O e : s \in h e -> s \notin holds e -> s \in out h.
    by move=> se ne; apply/bigcupP; exists e => //; rewrite inE ne.
  rewrite /hear; case: ifP => _; last by move=> sd; rewrite inE (O d).
  rewrite inE => /orP[sd|ss]; first by rewrite inE (O d).
  rewrite inE; case: (boolP (s \in holds (sender m))) => [_|ns]; first by rewrite orbT.
  by rewrite (O _ ss ns).
apply: leq_trans (subset_leq_card sub) _; rewrite cardsU; apply: leq_trans (leq_subr _ _) _.
by rewrite -addn1 leq_add.
Qed.

(** The devices that have heard of all. *)
Definition full h : {set D} := [set d | h d == setT].

Lemma full_hear h m : full (hear h m) \subset receiver m |: full h.
Proof. by apply/subsetP => d; rewrite !inE /hear; case: (d == receiver m). Qed.

Lemma full_mono h m : full h \subset full (hear h m).
Proof.
apply/subsetP => d; rewrite !inE /hear => /eqP e; case: (d == receiver m); last by rewrite e.
by rewrite e setTU.
Qed.

Lemma full_size ms : 1 < p -> full (heard ms) != set0 ->
  exists2 d0, d0 \in full (heard ms) & p - #|holds d0| + #|full (heard ms)| <= (size ms).+1.
Proof.
move=> p1; elim/last_ind: ms => [|ms m IH].
  case/set0Pn => d; rewrite inE /heard /= => /eqP e; have := one d.
  by rewrite e cardsT card_ord leqNgt p1.
rewrite size_rcons heard_rcons; set h := heard ms in IH *.
have [F0|F0] := eqVneq (full h) set0; last first.
  move=> _; have [d0 d0F le] := IH F0; exists d0; first exact: (subsetP (full_mono h m)).
  apply: (@leq_trans (p - #|holds d0| + (#|full h|).+1)); last by rewrite addnS ltnS.
  rewrite leq_add2l; apply: leq_trans (subset_leq_card (full_hear h m)) _.
  by rewrite cardsU1; case: (_ \notin _); rewrite /= ?add1n ?add0n ?leqnSn.
have sub := full_hear h m; rewrite F0 setU0 in sub.
case/set0Pn => d dF; exists d => //.
have c1 : #|full (hear h m)| <= 1 by rewrite -(cards1 (receiver m)) subset_leq_card.
apply: (@leq_trans (p - #|holds d| + 1)); first by rewrite leq_add2l.
rewrite addn1 ltnS -(size_rcons ms m); apply: leq_trans _ (out_size (rcons ms m)); rewrite heard_rcons -/h.
have <- : #|~: holds d| = p - #|holds d|.
  by have := cardsC (holds d); rewrite card_ord; move: (#|_|) (#|_|) => u w; lia.
apply/subset_leq_card/subsetP => s; rewrite inE => ns; apply/bigcupP; exists d => //; rewrite inE ns.
by move: dF; rewrite inE => /eqP ->; rewrite in_setT.
Qed.

Lemma heard_full_size ms T : 1 < p -> T != set0 -> T \subset full (heard ms) ->
  p + #|T| - 1 - (T :&: holders holds != set0) <= size ms.
Proof.
move=> p1 T0 TF; have F0 : full (heard ms) != set0.
  by apply: contraNneq T0 => e; rewrite e subset0 in TF.
have [d0 d0F le] := full_size p1 F0.
have [d0T|d0T] := boolP (d0 \in T).
  have cT := subset_leq_card TF.
  have le1 : #|holds d0| <= (T :&: holders holds != set0).
    have [e|ne] := eqVneq (holds d0) set0; first by rewrite e cards0.
    suff -> : T :&: holders holds != set0 by exact: one.
    by apply/set0Pn; exists d0; rewrite !inE d0T.
  have hp : #|holds d0| <= p by rewrite (leq_trans (max_card _)) ?card_ord.
  move: le le1 cT hp; set b := nat_of_bool _; by move: (#|holds d0|) (#|full _|) (#|T|) => a c e; lia.
have cT : #|T| < #|full (heard ms)|.
  by apply/proper_card/properP; split=> //; exists d0.
have := one d0; have b1 : (T :&: holders holds != set0) <= 1 by case: (_ != _).
by move: le cT b1; set b := nat_of_bool _; move: (#|holds d0|) (#|full _|) (#|T|) => a c e; lia.
Qed.
End Bound.

Section Lower.
Variables (D : finType) (p : nat) (V : Type) (holds : D -> {set 'I_p}) (f : ('I_p -> V) -> V).
Implicit Types (ms : protocol D V) (t : D) (T : {set D}).

Lemma nothing_heard ms t : t \notin [seq receiver m | m <- ms] -> heard holds ms t = holds t.
Proof.
rewrite /heard; elim: ms holds => [//|m ms IH] h /=; rewrite inE negb_or => /andP[tm tms].
by rewrite IH // /hear (negbTE tm).
Qed.

Hypotheses (some : 0 < p) (one : forall d, #|holds d| <= 1) (matters : minds f).

(** A device that holds not all must be told something: what each device receives at least. *)
Theorem told_once ms t : tells holds ms f t -> holds t != setT -> t \in [seq receiver m | m <- ms].
Proof.
move=> /(tells_heard matters) e; apply: contraR => /nothing_heard <-.
by rewrite e.
Qed.

(** Whatever is sent, and however it is made, at least so many messages are. *)
Theorem least_messages ms T : T != set0 -> (forall t, t \in T -> tells holds ms f t) -> least holds T <= size ms.
Proof.
move=> T0 all; rewrite /least; case: eqP => [p1|/eqP p1]; last first.
  have p2 : 1 < p by rewrite ltn_neqAle eq_sym p1.
  apply: heard_full_size => //; apply/subsetP => t tT; rewrite inE.
  by apply/eqP; apply: tells_heard matters _; apply: all.
rewrite cardE -(size_map (@receiver D V) ms); apply: uniq_leq_size (enum_uniq _) _ => t.
rewrite mem_enum in_setD inE negbK => /andP[/eqP e tT]; apply: told_once (all t tT) _; rewrite e.
by apply/eqP => /setP/(_ (Ordinal some)); rewrite !inE.
Qed.
End Lower.

(** *** Attained: reduce at one device, of those that want the sum and hold a summand if there is one; tell the others *)

Section Attained.
Variables (D : finType) (p : nat) (V : Type) (holds : D -> {set 'I_p}) (zero : V) (add : Monoid.com_law zero).
Implicit Types (k : D -> known V) (d r t : D) (T : {set D}).

Definition added (x : 'I_p -> V) : V := \big[add/zero]_s x s.
Definition sum_up (u : known V) : V := \big[add/zero]_(v <- u) v.
Definition first_of (u : known V) : V := head zero u.

(** Messages to one device from others, and from one to others. *)
Lemma to_one (S : eqType) (l : seq S) (from : S -> D) (c : known V -> V) r k d : {in l, forall s, from s != r} ->
  foldl (@tell D V) k [seq Message (from s) r c | s <- l] d = if d == r then k r ++ [seq c (k (from s)) | s <- l] else k d.
Proof.
elim: l k => [|s l IH] k /= H; first by case: eqP => [->|_]; rewrite ?cats0.
rewrite IH => [|j jl]; last by apply: H; rewrite inE jl orbT.
rewrite /tell /= eqxx; case: (d == r) => //.
rewrite cat_rcons; congr (_ ++ _ :: _); apply/eq_in_map => j jl.
by rewrite (negbTE (H j _)) // inE jl orbT.
Qed.

Lemma from_one (l : seq D) (c : known V -> V) r k d : uniq l -> r \notin l ->
  foldl (@tell D V) k [seq Message r t c | t <- l] d = if d \in l then rcons (k d) (c (k r)) else k d.
Proof.
elim: l k => [//|t l IH] k /= /andP[tl ul]; rewrite inE negb_or => /andP[rt rl].
rewrite IH // /tell /= (negbTE rt) inE; have [->|//] := eqVneq d t.
by rewrite (negbTE tl).
Qed.

Hypotheses (some : 0 < p) (one : forall d, #|holds d| <= 1) (held : forall s, exists d, s \in holds d).

Lemma own_one (x : 'I_p -> V) s d : s \in holds d -> own holds x d = [:: x s].
Proof.
move=> sd; rewrite /own; suff -> : holds d = [set s] by rewrite enum_set1.
apply/eqP; rewrite eq_sym eqEcard sub1set sd cards1; exact: one.
Qed.

Lemma own_none (x : 'I_p -> V) d : d \notin holders holds -> own holds x d = [::].
Proof. by rewrite inE negbK /own => /eqP ->; rewrite enum_set0. Qed.

Theorem least_attained T : T != set0 ->
  exists2 ms : protocol D V, size ms = least holds T & forall t, t \in T -> tells holds ms added t.
Proof.
move=> T0; rewrite /least; case: eqP => [p1|/eqP p1].
  have [r rs] := held (Ordinal some); set s := Ordinal some in rs.
  have all_s j : j = s by apply/val_inj; case: j => [[|j] /= lj]; last by move: lj; rewrite p1.
  have sum1 x : added x = x s.
    by rewrite /added (bigD1 s) //= big_pred0 ?Monoid.mulm1 // => j; rewrite (all_s j) eqxx.
  have rH : r \in holders holds by rewrite inE; apply/set0Pn; exists s.
  exists [seq Message r t first_of | t <- enum (T :\: holders holds)]; first by rewrite size_map cardE.
  move=> t tT; exists first_of => x; rewrite sum1 /knows from_one ?enum_uniq //; last first.
    by rewrite mem_enum inE rH.
  rewrite mem_enum inE tT andbT (own_one x rs); case: ifP => [tH|/negbFE tH].
    by rewrite (own_none x tH).
  move: tH; rewrite inE => /set0Pn[j]; rewrite (all_s j) => /(own_one x) -> //.
have p2 : 1 < p by rewrite ltn_neqAle eq_sym p1.
have [r rT cr] : exists2 r, r \in T & (T :&: holders holds != set0 : nat) = #|holds r|.
  have [e|/set0Pn[r]] := eqVneq (T :&: holders holds) set0.
    have [r rT] := set0Pn _ T0; exists r => //; apply/esym/eqP; rewrite cards_eq0; apply: contraT => hr.
    by have: r \in T :&: holders holds; [rewrite !inE rT hr | rewrite e inE].
  rewrite !inE => /andP[rT hr]; exists r => //; apply/esym/eqP.
  by rewrite eqn_leq one card_gt0.
have [h hs] := fin_all_exists held.
pose ms1 := [seq Message (h s) r first_of | s <- enum (~: holds r)].
pose ms2 := [seq Message r t sum_up | t <- enum (T :\ r)].
exists (ms1 ++ ms2).
  rewrite size_cat !size_map -!cardE cr; have := cardsC (holds r); rewrite card_ord; have := cardsD1 r T; rewrite rT.
  have := one r; have : 0 < #|T| by rewrite card_gt0.
  by move: (#|holds r|) (#|~: _|) (#|T|) (#|_|) => u v w z; lia.
have K x d : foldl (@tell D V) (own holds x) ms1 d =
    if d == r then own holds x r ++ [seq x s | s <- enum (~: holds r)] else own holds x d.
  rewrite to_one => [|s]; last first.
    by rewrite mem_enum inE; apply: contraNneq => <-; apply: hs.
  by case: eqP => // _; congr (_ ++ _); apply: eq_map => s; rewrite (own_one x (hs s)).
have sumr x : sum_up (own holds x r ++ [seq x s | s <- enum (~: holds r)]) = added x.
  rewrite /sum_up /own -map_cat big_map; apply/perm_big/uniq_perm; rewrite ?index_enum_uniq //.
    rewrite cat_uniq !enum_uniq andbT /=; apply/hasPn => s; rewrite mem_enum inE => ns.
    by rewrite -[mem _ _]/(s \in enum (holds r)) mem_enum.
  by move=> s; rewrite mem_cat !mem_enum mem_index_enum inE orbN.
move=> t tT; have [->|tr] := eqVneq t r.
  exists sum_up => x; rewrite /knows foldl_cat from_one ?enum_uniq ?mem_enum ?inE ?eqxx //.
  by rewrite K eqxx sumr.
exists (last zero) => x; rewrite /knows foldl_cat from_one ?enum_uniq ?mem_enum ?inE ?eqxx //.
by rewrite tr tT /= last_rcons K eqxx sumr.
Qed.
End Attained.

(** Sums and maxima of numbers mind every summand. *)
Theorem sum_minds p : minds (fun x : 'I_p -> nat => \sum_s x s).
Proof.
move=> s; exists (fun _ => 0), (fun k => (k == s) : nat); split=> [k /negbTE -> //|].
by rewrite big1 // (bigD1 s) //= eqxx.
Qed.

Theorem max_minds p : minds (fun x : 'I_p -> nat => \max_s x s).
Proof.
move=> s; exists (fun _ => 0), (fun k => (k == s) : nat); split=> [k /negbTE -> //|].
rewrite big1 // => e; have := @leq_bigmax _ (fun k : 'I_p => (k == s) : nat) s.
by rewrite -e eqxx.
Qed.
