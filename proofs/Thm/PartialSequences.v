(** Sequences on partial arrays: reductions come early, and where tiles do not divide they must be all-reduces. *)
From mathcomp Require Import all_ssreflect zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.PartialWeak.
From Redistrib Require Import Thm.Arith.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section Counterexample.
(** Two devices along [x], two along [y]: from [[1{x}2] sum{y}] to [[1{y}2]]. *)
Definition pair_of (k : nat) : shape 1 := [ffun=> k].
Definition cut_summands : pstate 1 := (pair_of 1, 2).
Definition cut_other : pstate 1 := (pair_of 1, 1).
Local Notation step := (@pstep 1 (pair_of 2) 4).
Local Notation run := (@prun 1 (pair_of 2) 4).

Lemma vol1 (c : shape 1) : vol c = c ord0.
Proof. by rewrite /vol big_ord_recl big_ord0 muln1. Qed.

Lemma pair_node k p : k %| 2 -> p * 2 %| 4 * k -> pnode (pair_of 2) 4 (pair_of k, p).
Proof. by move=> h h'; rewrite /pnode /= !vol1 !ffunE h' andbT; apply/forallP => i; rewrite !ffunE. Qed.

Lemma pair_mul k m : mul ord0 m (pair_of k) = pair_of (k * m).
Proof. by apply/ffunP => i; rewrite !ffunE (ord1 i) eqxx. Qed.

(** A gather and a reduce-scatter lead there, over a tile of 2: a peak. *)
Theorem peak_exists w : run w cut_summands [:: (Moves AllGather, (pair_of 2, 2)); (ReduceScatter, cut_other)] cut_other.
Proof.
have f2 : factor w 2 by case: w.
split; first split; rewrite ?pair_node //; first split=> //.
  split; rewrite /node /= ?vol1 ?ffunE //; try by rewrite ?vol1 ?ffunE //= andbT; apply/forallP => i; rewrite !ffunE.
  by exists ord0, 2; rewrite pair_mul.
split=> //; split; rewrite ?pair_node //.
by exists ord0, 2; rewrite pair_mul.
Qed.

(** An all-reduce leads there within the tiles of the ends. *)
Theorem all_reduce_does w : run w cut_summands [:: (AllReduce, cut_other)] cut_other.
Proof. by split=> //; split; rewrite ?pair_node //; exists 2; split=> //; case: w. Qed.

(** Without all-reduces the summands stay where no tile has more than one element. *)
Lemma summands_stay w x q y : run w x q y -> 1 < x.2 -> all (fun k => ~~ is_all_reduce k) (pkinds q) ->
  pheight x q <= 1 -> 1 < y.2.
Proof.
elim: q x => [|[k z] q IH] x /=; first by move=> ->.
case=> [[_ nz S] R] p /andP[nk kq] le; apply: IH R _ kq _; last by move: le; rewrite geq_max => /andP[].
case: k nk S => [k|||] //= _.
- by case=> _ <-.
- case=> i [m [fm _ E]]; exfalso; have m1 := factor_gt1 fm.
  have v1 : vol x.1 <= 1 by move: le; rewrite geq_max => /andP[].
  have v0 : 0 < vol z.1.
    by case/andP: nz => /forallP/(_ ord0) h _; rewrite vol1; apply: dvdn_gt0 h; rewrite ffunE.
  by move: v1; rewrite E vol_mul; move: m1 v0; case: (m) => [|[|u]] //; case: (vol _) => [|t] // _ _; lia.
- by case=> m [fm E _]; rewrite E; have := factor_gt1 fm; lia.
Qed.

(** No sequence without an all-reduce does within the tiles of the ends; and at any height none in normal form. *)
Theorem peak_needs_all_reduce w q : run w cut_summands q cut_other -> pheight cut_summands q <= 1 ->
  has is_all_reduce (pkinds q).
Proof.
move=> R le; apply/negPn/negP; rewrite -all_predC => A.
by have := summands_stay R (ltnSn 1) A le.
Qed.

Lemma stays w (K : pkind -> bool) x q y : (forall k, K k -> is_move (fun _ => true) k) -> run w x q y -> all K (pkinds q) -> x.2 = y.2.
Proof.
move=> KM; elim: q x => [|[k z] q IH] x /=; first by move=> ->.
by case=> [[_ _ S] R] /andP[/KM kk aq]; rewrite -(IH z R aq); case: k kk S => //= k _ [].
Qed.

Lemma prun_cat w x p q y : run w x (p ++ q) y -> exists2 z, run w x p z & run w z q y.
Proof.
elim: p x => [|[k u] p IH] x /=; first by exists x.
by case=> S /IH[z R1 R2]; exists z.
Qed.

Lemma no_smaller w (K : pkind -> bool) x q y : (forall k, K k -> is_move is_slice k \/ is_reduce_scatter k) -> vol x.1 = 1 ->
  run w x q y -> all K (pkinds q) -> x = y.
Proof.
move=> KM v; case: q => [|[k z] q] //= [[nx nz S] R] /andP[/KM kk _]; exfalso.
have big i m : factor w m -> x.1 = mul i m z.1 -> False.
  move=> fm E; have m1 := factor_gt1 fm; move: v; rewrite E vol_mul.
  by case: (m) m1 => [|[|u]] //; case: (vol z.1) => [|t] //; rewrite ?muln0 //; lia.
case: k kk S => [[]|||] /= kk; try by case: kk.
- by case=> [[_ _ [i [m [fm E]]]] _]; apply: big fm E.
- by case=> i [m [fm _ E]]; apply: big fm E.
Qed.

Theorem normal_form_needs_all_reduce w q : run w cut_summands q cut_other -> pnormal (pkinds q) ->
  has is_all_reduce (pkinds q).
Proof.
move=> R [a [b [c [d [e [E A B C [Dd Ee]]]]]]]; apply/negPn/negP => no.
have [qa [qb [qc [qd [qe [Eq [Ea Eb Ec Ed Eqe]]]]]]] : exists qa qb qc qd qe, q = qa ++ qb ++ qc ++ qd ++ qe /\
   [/\ pkinds qa = a, pkinds qb = b, pkinds qc = c, pkinds qd = d & pkinds qe = e].
  exists (take (size a) q), (take (size b) (drop (size a) q)), (take (size c) (drop (size b) (drop (size a) q))).
  exists (take (size d) (drop (size c) (drop (size b) (drop (size a) q)))).
  exists (drop (size d) (drop (size c) (drop (size b) (drop (size a) q)))).
  rewrite !cat_take_drop; split=> //; rewrite /pkinds in E *.
  by rewrite !map_take !map_drop E !(take_size_cat, drop_size_cat) //; split.
have c0 : c = [::].
  case: c C {Ec} E => [//|k c] /= /andP[kk _] E; case/negP: no.
  by rewrite E !has_cat /= kk !orbT.
move: R; rewrite Eq; case/prun_cat=> x1 R1 /prun_cat[x2 R2] /prun_cat[x3 R3] /prun_cat[x4 R4 R5].
have v : vol cut_summands.1 = 1 by rewrite vol1 ffunE.
have e1 : cut_summands = x1 by apply: (no_smaller _ v R1) => [k kk|]; [left; exact: kk | rewrite Ea].
have e2 : x1 = x2 by apply: (no_smaller _ _ R2) => [k kk||]; [right; exact: kk | rewrite -e1 | rewrite Eb].
have e3 : x2 = x3 by move: Ec R3; rewrite c0; case: (qc).
have m4 : x3.2 = x4.2 by apply: (stays (K := is_move is_middle) _ R4); [case | rewrite Ed].
have m5 : x4.2 = cut_other.2 by apply: (stays (K := is_move is_gather) _ R5); [case | rewrite Eqe].
by move: m5; rewrite -m4 -e3 -e2 -e1.
Qed.
End Counterexample.
