(** Koenig: a bipartite multigraph whose degrees do not exceed [d] is covered by [d] permutations, and a regular one is
    their sum. Here an edge is a share; a permutation is a round. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Rounds.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(** ** Hall's marriage theorem *)
Section Hall.
Variables (A B : finType).
Implicit Types (S : {set A}) (R : A -> {set B}).

Definition nbrs R S : {set B} := \bigcup_(a in S) R a.

Lemma hall n R S : #|S| <= n -> (forall S', S' \subset S -> #|S'| <= #|nbrs R S'|) ->
  exists f : A -> option B, (forall a, a \in S -> exists b, f a = Some b /\ b \in R a) /\
    (forall a a' b, a \in S -> a' \in S -> f a = Some b -> f a' = Some b -> a = a').
Proof.
elim: n R S => [|n IH] R S.
  rewrite leqn0 cards_eq0 => /eqP -> _; exists (fun=> None).
  by split=> [a|a a' b]; rewrite inE.
move=> le H; case: (set_0Vmem S) => [-> | [a0 a0S]].
  by exists (fun=> None); split=> [a|a a' b]; rewrite inE.
pose crit := [pred S' : {set A} | [&& S' != set0, S' \proper S & #|nbrs R S'| == #|S'|]].
case: (pickP crit) => [C /and3P [C0 CS /eqP EC] | nocrit]; last first.
  (* every smaller set has a neighbour to spare: match a0 with any neighbour *)
  have : 0 < #|nbrs R [set a0]| by rewrite (leq_trans _ (H _ _)) ?cards1 ?sub1set.
  rewrite /nbrs big_set1 => /card_gt0P [b0 b0R].
  have [|S' sS'|f [f1 f2]] := IH (fun a => R a :\ b0) (S :\ a0).
  - by have := cardsD1 a0 S; rewrite a0S; lia.
  - have -> : nbrs (fun a => R a :\ b0) S' = nbrs R S' :\ b0.
      apply/setP=> b; rewrite !inE; apply/bigcupP/andP => [[a aS'] | [bb /bigcupP [a aS' bR]]].
        by rewrite !inE => /andP [bb bR]; split=> //; apply/bigcupP; exists a.
      by exists a => //; rewrite !inE bb.
    case: (eqVneq S' set0) => [->|S0]; first by rewrite cards0.
    have pr : S' \proper S.
      by apply: sub_proper_trans sS' _; rewrite properD1.
    have := nocrit S'; rewrite /= S0 pr /= => /negbT ne.
    have := H S' (proper_sub pr); have := cardsD1 b0 (nbrs R S').
    by case: (b0 \in _) => /=; lia.
  exists (fun a => if a == a0 then Some b0 else f a); split=> [a aS | a a' b aS a'S].
    case: eqP => [->|/eqP ne]; first by exists b0.
    have [|b [fb]] := f1 a; first by rewrite !inE ne.
    by rewrite !inE => /andP [_ bR]; exists b.
  case: eqP => [->|/eqP ne]; case: eqP => [->|/eqP ne'] //.
  - move=> [Eb] fa'; have [|c [fb]] := f1 a'; first by rewrite !inE ne'.
    by move: fb; rewrite fa' => -[<-]; rewrite !inE -Eb eqxx.
  - move=> fa [Eb]; have [|c [fb]] := f1 a; first by rewrite !inE ne.
    by move: fb; rewrite fa => -[<-]; rewrite !inE -Eb eqxx.
  by apply: f2; rewrite !inE ?ne ?ne'.
(* a critical set: match it, and the rest outside its neighbours *)
have [||f [f1 f2]] := IH R C.
- by have := proper_card CS; lia.
- by move=> S' sS'; apply: H; apply: subset_trans sS' (proper_sub CS).
have [|S' sS'|g [g1 g2]] := IH (fun a => R a :\: nbrs R C) (S :\: C).
- have := cardsD S C; rewrite (setIidPr (proper_sub CS)).
  have : 0 < #|C| by rewrite card_gt0.
  by lia.
- have sub : S' :|: C \subset S.
    by rewrite subUset (subset_trans sS' (subsetDl _ _)) (proper_sub CS).
  have := H _ sub; have -> : nbrs R (S' :|: C) = nbrs R S' :|: nbrs R C by apply: bigcup_setU.
  have -> : nbrs (fun a => R a :\: nbrs R C) S' = nbrs R S' :\: nbrs R C.
    apply/setP=> b; rewrite !inE; apply/bigcupP/andP => [[a aS'] | [bb /bigcupP [a aS' bR]]].
      by rewrite !inE => /andP [bb bR]; split=> //; apply/bigcupP; exists a.
    by exists a => //; rewrite !inE bb.
  have dis : [disjoint S' & C].
    by rewrite -setI_eq0 -subset0; apply/subsetP=> a; rewrite inE => /andP [/(subsetP sS')]; rewrite inE => /andP [/negPf ->].
  have := cardsUI S' C; have /eqP -> : S' :&: C == set0 by rewrite setI_eq0.
  rewrite cards0 addn0 => ->; have := cardsUI (nbrs R S') (nbrs R C); have := cardsID (nbrs R C) (nbrs R S').
  lia.
exists (fun a => if a \in C then f a else g a); split=> [a aS | a a' b aS a'S].
  case: ifP => aC; first exact: f1.
  have [|b [gb]] := g1 a; first by rewrite !inE aC.
  by rewrite !inE => /andP [_ bR]; exists b.
have apart x y c : x \in C -> y \in S -> y \notin C -> f x = Some c -> g y = Some c -> False.
  move=> xC yS yC fx gy; have [c' [fc c'R]] := f1 x xC; have [|d [gd]] := g1 y; first by rewrite !inE yC.
  move: gd; rewrite gy => -[<-]; rewrite !inE => /andP [/negP no _]; apply: no.
  by apply/bigcupP; exists x => //; move: fc; rewrite fx => -[->].
case: ifP => aC; case: ifP => a'C.
- exact: f2.
- by move=> fa ga; case: (apart a a' b); rewrite ?a'C.
- by move=> ga fa; case: (apart a' a b); rewrite ?aC.
by apply: g2; rewrite !inE ?aC ?a'C.
Qed.
End Hall.

(** ** Regular multigraphs *)
Section Koenig.
Variable D : finType.
Implicit Types (M : D -> D -> nat) (N : nat) (ps : seq {perm D}).

Lemma regular_matching M N : 0 < N -> regular M N -> exists p : {perm D}, forall a, 0 < M a (p a).
Proof.
move=> N0 [row col]; pose R a := [set b | 0 < M a b].
have [||f [f1 f2]] := @hall D D #|D| R [set: D]; first by rewrite cardsT.
  move=> S _; rewrite -(leq_pmul2l N0).
  have -> : N * #|S| = \sum_(a in S) \sum_(b in nbrs R S) M a b.
    rewrite mulnC -sum_nat_const; apply: eq_bigr => a aS; rewrite -(row a) (bigID (mem (nbrs R S))) /=.
    rewrite [X in _ + X]big1 ?addn0 // => b bR; apply/eqP; rewrite -leqn0 leqNgt; apply: contra bR => ab.
    by apply/bigcupP; exists a; rewrite // inE.
  rewrite exchange_big /= mulnC -sum_nat_const; apply: leq_sum => b _.
  by rewrite -(col b) [X in _ <= X](bigID (mem S)) /= leq_addr.
pose g a := if f a is Some b then b else a.
have gP a : f a = Some (g a) /\ 0 < M a (g a).
  by have [|b [fb]] := f1 a; rewrite // /g fb inE.
have g_inj : injective g.
  by move=> a a' E; apply: (f2 _ _ (g a)); rewrite ?inE // ?(gP a).1 // E (gP a').1.
by exists (perm g_inj) => a; rewrite permE; case: (gP a).
Qed.

(** Koenig's theorem for regular multigraphs: a sum of [N] permutations. *)
Theorem regular_sum_of_permutations M N : regular M N ->
  exists ps, size ps = N /\ forall a b, M a b = \sum_(p <- ps) (p a == b).
Proof.
elim: N M => [|N IH] M rM.
  exists [::]; split=> // a b; rewrite big_nil; have /eqP := rM.1 a.
  by rewrite sum_nat_eq0 => /forallP /(_ b) /eqP.
have [p pM] := regular_matching (ltn0Sn N) rM.
have pos a b : (p a == b) <= M a b by case: eqP => // <-.
have sub (F G : D -> nat) : (forall x, G x <= F x) -> \sum_x (F x - G x) = \sum_x F x - \sum_x G x.
  by move=> le; apply/eqP; rewrite -(eqn_add2r (\sum_x G x)) subnK ?leq_sum // -big_split; apply/eqP/eq_bigr => x _; rewrite /= subnK.
have one_r a : \sum_b (p a == b) = 1.
  by rewrite (bigD1 (p a)) //= eqxx big1 // => b /negPf; rewrite eq_sym => ->.
have one_c b : \sum_a (p a == b) = 1.
  rewrite (bigD1 (p^-1%g b)) //= permKV eqxx big1 // => a ne.
  by case: eqP => // E; rewrite -E permK eqxx in ne.
have [|ps [sz E]] := IH (fun a b => M a b - (p a == b)).
  by split=> x; rewrite sub // ?rM.1 ?rM.2 ?one_r ?one_c subn1.
exists (p :: ps); split=> [|a b]; first by rewrite /= sz.
by rewrite big_cons -E subnKC.
Qed.

(** Rounds of an exchange of equal shares, [N] per device, its own included: there are [N] of them, in each a device
    sends at most once and receives at most once, and what it takes in from others is exactly what it lacked. *)
Theorem rounds_meet_the_bound M N : regular M N ->
  exists ps, [/\ size ps = N, forall a b, M a b = \sum_(p <- ps) (p a == b) &
    forall b, \sum_(p <- ps) (p b != b) = N - M b b /\ \sum_(p <- ps) (p^-1%g b != b) = N - M b b].
Proof.
move/regular_sum_of_permutations => [ps [sz E]]; exists ps; split=> // b; rewrite E -sz -sum1_size.
have D1 : \sum_(p <- ps) (p b != b) + \sum_(p <- ps) (p b == b) = \sum_(p <- ps) 1.
  by rewrite -big_split; apply: eq_bigr => p _ /=; case: eqP.
have D2 : \sum_(p <- ps) (p^-1%g b != b) = \sum_(p <- ps) (p b != b).
  apply: eq_bigr => p _; congr (nat_of_bool (~~ _)).
  by apply/eqP/eqP => H; [rewrite -{1}H permKV | rewrite -{1}H permK].
by rewrite D2 -D1 addnK.
Qed.

(** Unequal degrees: as many rounds as the busiest device has shares. *)
Lemma pad_to_regular M d n : (forall a, \sum_b M a b <= d) -> (forall b, \sum_a M a b <= d) ->
  d * #|D| - \sum_a \sum_b M a b <= n -> exists M', (forall a b, M a b <= M' a b) /\ regular M' d.
Proof.
have tot (F : D -> nat) x : (forall a, F a <= d) -> F x < d -> \sum_a F a < d * #|D|.
  move=> le lt; rewrite mulnC -sum_nat_const (bigD1 x) //= [X in _ < X](bigD1 x) //=.
  by rewrite -addSn leq_add // leq_sum.
have full (F : D -> nat) : (forall a, F a <= d) -> d * #|D| <= \sum_a F a -> forall a, F a = d.
  move=> le ge a; apply/eqP; rewrite eqn_leq le leqNgt; apply/negP => lt.
  by have := tot F a le lt; rewrite ltnNge ge.
elim: n M => [|n IH] M row col.
  rewrite leqn0 subn_eq0 => ge; exists M; split=> //; split; first exact: full ge.
  by apply: full; rewrite // exchange_big.
move=> def; case: (pickP (fun a => \sum_b M a b < d)) => [a lta | no]; last first.
  have rowd a : \sum_b M a b = d by apply/eqP; rewrite eqn_leq row leqNgt no.
  exists M; split=> //; split=> //; apply: full => //; rewrite exchange_big /=.
  by rewrite (eq_bigr (fun=> d)) // sum_nat_const mulnC.
have ltT := tot _ a row lta.
case: (pickP (fun b => \sum_x M x b < d)) => [b ltb | no]; last first.
  move: ltT; rewrite exchange_big /= (eq_bigr (fun=> d)) => [|b _]; last by apply/eqP; rewrite eqn_leq col leqNgt no.
  by rewrite sum_nat_const mulnC ltnn.
pose M1 x y := M x y + ((x == a) && (y == b)).
have r1 x : \sum_y M1 x y = \sum_y M x y + (x == a).
  rewrite big_split /=; congr (_ + _); case: eqP => _ /=; last by rewrite big1.
  by rewrite (bigD1 b) //= eqxx big1 // => y /negPf ->.
have c1 y : \sum_x M1 x y = \sum_x M x y + (y == b).
  rewrite big_split /=; congr (_ + _); rewrite (bigD1 a) //= eqxx big1 ?addn0 // => x /negPf -> //.
have [x|y||M' [le reg]] := IH M1.
- by rewrite r1; case: eqP => [->|_]; rewrite ?addn1 // addn0.
- by rewrite c1; case: eqP => [->|_]; rewrite ?addn1 // addn0.
- rewrite (eq_bigr _ (fun x _ => r1 x)) big_split /=.
  have -> : \sum_x (x == a) = 1 by rewrite (bigD1 a) //= eqxx big1 // => x /negPf ->.
  by move: def ltT; move: (\sum_x _) (d * _) => S T; lia.
by exists M'; split=> // x y; apply: leq_trans (le x y); apply: leq_addr.
Qed.

Theorem rounds_of_the_busiest M d : (forall a, \sum_b M a b <= d) -> (forall b, \sum_a M a b <= d) ->
  exists ps, size ps = d /\ forall a b, M a b <= \sum_(p <- ps) (p a == b).
Proof.
move=> row col; have [M' [le /regular_sum_of_permutations [ps [sz E]]]] := pad_to_regular row col (leqnn _).
by exists ps; split=> // a b; rewrite -E.
Qed.
End Koenig.
